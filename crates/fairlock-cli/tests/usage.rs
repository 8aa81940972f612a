//! The command line itself: what is refused, with which code, and that the message is one line.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{
    Running, alone, fairlock, finish, hold_until, neutral, run_script, with_default_signals,
};
use crate::generated::COMMANDS;

/// Placeholder in the table for a store that nobody else uses.
const ALONE: &str = "ALONE";

/// Arguments, exit code, a part of the one line on stderr (nothing at all if empty).
type Row = (&'static [&'static str], i32, &'static str);

const TABLE: &[Row] = &[
    (&["--help"], 0, ""),
    (&["--version"], 0, ""),
    (&["run", "--help"], 0, ""),
    (&["status", "--help"], 0, ""),
    (&["help"], 0, ""),
    (&[], 64, "e.g. fairlock run nightly -- ./backup.sh; see fairlock --help"),
    (&["frobnicate"], 64, "frobnicate"),
    (&["--frobnicate"], 64, "--frobnicate"),
    (&["run"], 64, "NAME"),
    (&["run"], 64, "e.g. fairlock run nightly -- ./backup.sh; see fairlock run --help"),
    (&["status", "--frobnicate"], 64, "e.g. fairlock status nightly; see fairlock status --help"),
    (&["unlock"], 64, "e.g. fairlock unlock --force nightly; see fairlock unlock --help"),
    (&["run", "x", "true"], 64, "true"),
    (
        &["run", "x", "true"],
        64,
        "true: a command stands behind `--`: `fairlock run x -- true ...`; several locks need a command too",
    ),
    // A variable that should contain the command, and is empty.
    (&["run", "--url", ALONE, "x", "--"], 64, "no COMMAND follows `--`"),
    (&["run", "--grace", "1s", "x"], 64, "COMMAND"),
    (&["run", "--on-lost", "ignore", "x"], 64, "COMMAND"),
    (&["help", "frobnicate"], 64, "frobnicate"),
    (&["completions"], 64, "e.g. fairlock completions bash"),
    (&["completions", "csh"], 64, "csh"),
    (&["man", "frobnicate"], 64, "e.g. fairlock man"),
    (&["__frobnicate"], 64, "__frobnicate"),
    (&["run", "--wait", "5", "x", "--", "true"], 64, "unit is missing"),
    (&["run", "--wait", "0.5ms", "x", "--", "true"], 64, "finer than a millisecond"),
    (&["run", "--wait", "5", "x", "--", "true"], 64, "`5s`?"),
    (&["run", "--url", ALONE, "--wait", "1d", "--lease", "1m30s", "x", "--", "true"], 0, ""),
    (&["run", "--wait", "99999999999999999999s", "x", "--", "true"], 64, "longer than a year"),
    (&["run", "--wait=-1s", "x", "--", "true"], 64, "starts with a number"),
    (&["run", "--lease", "0", "x", "--", "true"], 64, "longer than 0"),
    (&["run", "--grace", "soon", "x", "--", "true"], 64, "starts with a number"),
    (&["run", "--kind", "odd", "x", "--", "true"], 64, "odd"),
    (&["run", "--on-lost", "cry", "x", "--", "true"], 64, "cry"),
    (&["run", "--shared", "--permits", "3", "x", "--", "true"], 64, "cannot be used with"),
    (&["run", "--shared", "--kind", "fair", "x", "--", "true"], 64, "is for locks of --kind rw"),
    (&["run", "--shared", "--kind", "semaphore", "x", "--", "true"], 64, "--kind rw"),
    (&["run", "--kind", "semaphore", "x", "--", "true"], 64, "needs --permits N"),
    (&["run", "--permits", "3", "--kind", "rw", "x"], 64, "is for locks of --kind semaphore"),
    (&["run", "--permits", "0", "x", "--", "true"], 64, "0 is not in 1..=4294967295"),
    (&["run", "--permits", "4294967296", "x", "--", "true"], 64, "4294967296 is not in 1.."),
    (&["run", "--permits", "2", "--take", "0", "x", "--", "true"], 64, "0 is not in 1.."),
    (&["run", "--permits", "2", "--take", "3", "x", "--", "true"], 64, "--take 3 is more than"),
    (&["run", "--take", "1", "x", "--", "true"], 64, "--take 1 needs --permits N"),
    (&["run", "--take", "1", "--kind", "rw", "x", "--", "true"], 64, "--take is for semaphores"),
    (&["run", "--permits", "-1", "x", "--", "true"], 64, "-1 is not in 1.."),
    (&["run", "--permits", "2", "--take", "-1", "x", "--", "true"], 64, "-1 is not in 1.."),
    (
        &["run", "--url", ALONE, "--shared", "--once-per", "1h", "x", "--", "true"],
        64,
        "x: under --once-per one run at a time starts, so --shared means nothing",
    ),
    (
        &["run", "--url", ALONE, "--permits", "2", "--once-per", "1h", "x", "--", "true"],
        64,
        "so --permits means nothing; leave one of them out",
    ),
    (&["run", "--conflict-exit-code", "256", "x", "--", "true"], 64, "256"),
    (&["run", "--lost-exit-code", "-1", "x", "--", "true"], 64, "-1"),
    (&["run", "--scope", "galaxy", "x", "--", "true"], 64, "galaxy"),
    (&["run", "--scope", "fleet", "--url", "memory:", "x", "--", "true"], 64, "one process only"),
    (&["run", "--scope", "host", "--url", "memory:", "x", "--", "true"], 64, "one process only"),
    (&["status", "--kind", "plain"], 64, "NAME"),
    (&["status", "--exit-code", "--url", "memory:"], 64, "NAME"),
    (&["status", "--quiet", "--url", "memory:", "x"], 64, "--exit-code"),
    (&["run", "--url", "http://host", "x", "--", "true"], 64, "fairlock: "),
    (&["run", "--url", "junk", "x", "--", "true"], 64, "fairlock: "),
    (&["run", "--url", ALONE, "", "--", "true"], 64, "name"),
    (
        &["unlock", "--url", "memory:", "x"],
        64,
        "--force takes the lock away from it; see fairlock unlock --help",
    ),
    (&["unlock", "--url", "memory:", "--force", "x"], 1, ""),
    (&["unlock", "--url", "memory:", "--force", "--yes", "--quiet", "x"], 1, ""),
    (&["status", "--url", "memory:", "x"], 0, ""),
    (&["list", "--url", "memory:"], 0, ""),
    (&["list", "--url", "memory:", "x", "y"], 0, ""),
    (&["list", "--url", "memory:", "--all", "--json"], 0, ""),
    (&["list", "--url", "memory:", "--held", "--waiting"], 64, "cannot be used with"),
    (&["list", "--url", "memory:", "--rate", "0"], 64, "0 is not in 1..=1000000"),
    (&["list", "--url", "memory:", "--rate", "1000001"], 64, "1000001 is not in"),
    (&["list", "--url", "memory:", ""], 64, "name"),
    (&["list", "--url", "memory:", "job:*", "--json"], 0, ""),
    (
        &["list", "--url", "memory:", "job:*:log"],
        64,
        "job:*:log: of patterns there is only 'PREFIX*'",
    ),
    (&["watch", "--url", "memory:"], 64, "NAME"),
    (&["watch", "--url", "memory:", ""], 64, "name"),
    (&["watch", "--url", "memory:", "--interval", "199ms", "x"], 64, "between 200ms and 1h"),
    // What the completions ask: silent, whatever is wrong.
    (&["__names", "fairlock status --url memory: "], 0, ""),
    (&["__names", "fairlock status --url redis://127.0.0.1:1 "], 0, ""),
    (&["__names", "fairlock status --url junk "], 0, ""),
    (&["top", "--url", "memory:"], 64, "`fairlock list` prints once"),
    (&["top", "--url", "memory:", "--interval", "199ms"], 64, "between 200ms and 1h"),
    (&["top", "--url", "memory:", "--max", "1001"], 64, "1001 is not in 1..=1000"),
    (&["status", "--url", "memory:"], 0, ""),
    (&["status", "--url", "memory:", "--exit-code", "x"], 0, ""),
    (&["run", "--url", ALONE, "x", "--", "true"], 0, ""),
    (&["run", "--url", ALONE, "--kind", "plain", "x", "--", "true"], 0, ""),
    (&["run", "--url", ALONE, "--kind", "simple", "x", "--", "true"], 0, ""),
    (&["status", "--url", "memory:", "--kind", "simple", "x"], 0, ""),
    (&["unlock", "--url", "memory:", "--force", "--kind", "simple", "x"], 1, ""),
    (&["run", "--url", ALONE, "--wait", "0", "x", "--", "true"], 0, ""),
    (&["run", "--url", ALONE, "--wait", "1h", "--lease", "10s", "x", "--", "true"], 0, ""),
];

#[test]
fn table_of_usage() {
    for &(args, code, text) in TABLE {
        let store = alone();
        let words = args.iter().map(|word| if *word == ALONE { &store } else { *word });
        let outcome = finish(fairlock(words));
        assert_eq!(outcome.code(), code, "{args:?}: {outcome:?}");
        outcome.expect(code, text);
    }
}

/// `run` is one process: on a store where each process has locks of its own, it excluded nobody,
/// and did not say so.
#[test]
fn d21_run_refuses_a_store_that_keeps_out_nobody() {
    for args in [&["x", "--", "true"][..], &["x"], &["--wait", "0", "x", "--", "true"]] {
        let mut by_option = fairlock(["run", "--url", "memory:"]);
        by_option.args(args);
        finish(by_option).expect(64, "memory:, seen by one process only; from --url: nobody else");
        let mut by_variable = fairlock(["run"]);
        by_variable.args(args).env("FAIRLOCK_URL", "memory:");
        finish(by_variable).expect(64, "from FAIRLOCK_URL: nobody else would be kept out");
    }
}

/// A user who has not typed the URL must learn which one it is, and where it comes from.
#[test]
fn d27_a_wrong_url_is_shown_with_its_source() {
    let dir = TempDir::new();
    let file = dir.path().join("config.toml");
    fs::write(&file, "url = \"http://ann:canary@locks.example/\"\n").unwrap();
    let mut in_file = fairlock(["status", "x"]);
    in_file.env("FAIRLOCK_CONFIG", &file);
    let outcome = finish(in_file);
    let said = format!("`url` in {} is `http://***`: unknown scheme", file.display());
    outcome.expect(64, &said);
    assert!(!outcome.stderr.contains("canary"), "{outcome:?}");
    for (url, said) in [
        (
            "localhost:6379",
            "FAIRLOCK_URL is `localhost:6379`: unknown scheme in the store URL; use ",
        ),
        ("http://h", "unknown scheme in the store URL; use `sqlite:`, `redis://`, "),
        ("redis://h:port", "FAIRLOCK_URL is `redis://***`: "),
    ] {
        for args in [&["status", "x"][..], &["run", "x", "--", "true"], &["list"]] {
            let mut command = fairlock(args);
            command.env("FAIRLOCK_URL", url);
            finish(command).expect(64, said);
        }
    }
}

/// With six open files it ended with a panic in another crate, and 101.
#[test]
fn d28_few_files_that_may_be_opened_are_an_error() {
    let store = alone();
    let mut refused = 0;
    for files in 3..24 {
        for command in ["status x", "run x -- true"] {
            // Standard streams and nothing else; the loader needs one descriptor to start.
            let script = format!("ulimit -n {files}; exec \"$0\" {command}");
            let mut shell = with_default_signals("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_fairlock")]);
            neutral(&mut shell);
            shell.env("FAIRLOCK_URL", &store).stdin(Stdio::null());
            shell.stdout(Stdio::piped()).stderr(Stdio::piped());
            let outcome = finish(shell);
            // The loader of shared libraries, and the shell, have exit codes of their own.
            if outcome.code() == 127 && !outcome.stderr.starts_with("fairlock: ") {
                continue;
            }
            let known = [0, 64, 69, 70, 77, 126].contains(&outcome.code());
            assert!(
                known && !outcome.stderr.contains("panicked"),
                "{files} {command}: {outcome:?}"
            );
            refused += usize::from(outcome.code() != 0);
        }
    }
    assert!(refused > 5, "{refused} were refused");
}

/// `ulimit -f`: a write to a file that had grown to the limit silently killed a holder while it
/// worked (SIGXFSZ). Now the write fails; and the command has the signal's default action, as under
/// any other program.
#[test]
fn files_that_may_not_grow_end_no_holder() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let run = |url: &str, script: &str, stderr: Stdio| {
        let mut shell = with_default_signals("sh");
        let limited = r#"ulimit -f 0; exec "$0" run -v x -- sh -c "$SCRIPT""#;
        shell.args(["-c", limited, env!("CARGO_BIN_EXE_fairlock")]);
        neutral(&mut shell);
        shell.env("FAIRLOCK_URL", url).env("SCRIPT", script).stdin(Stdio::null());
        shell.stdout(Stdio::piped()).stderr(stderr);
        finish(shell)
    };
    let log = dir.path().join("log");
    let file = || Stdio::from(fs::File::create(&log).expect("a file"));
    // `-v` prints on stderr that the lock is acquired.
    run(&server.url(), "exit 7", file()).expect(7, "");
    let told = run(&server.url(), "exit 7", Stdio::piped());
    assert!(told.code() == 7 && told.stderr.contains("acquired"), "{told:?}");
    run(&server.url(), "echo too much >&2; exit 7", file()).expect(153, "");
    assert_eq!(fs::metadata(&log).expect("it is there").len(), 0);
    let host = format!("sqlite:{}/locks.db", dir.path().display());
    run(&host, "exit 7", Stdio::piped()).expect(69, "fairlock: ");
}

/// `-x` is a valid name.
#[test]
fn d29_names_that_begin_with_a_dash() {
    let store = alone();
    finish(fairlock(["run", "-z", "--", "true"])).expect(64, "unexpected argument '-z' found");
    finish(fairlock(["status", "-x"])).expect(64, "unexpected argument '-x' found");
    let script = r#"exec "$0" status --exit-code -- --name"#;
    let program = env!("CARGO_BIN_EXE_fairlock");
    let mut command =
        fairlock(["run", "--url", &store, "--name=--name", "--", "sh", "-c", script, program]);
    command.env("FAIRLOCK_URL", &store);
    let outcome = finish(command);
    outcome.expect(1, "");
    assert!(outcome.stdout.starts_with("--name: held by "), "{outcome:?}");
    finish(fairlock(["run", "--name=a", "b", "--", "true"])).expect(64, "cannot be used with");
}

#[test]
fn d29_options_and_commands_that_were_meant() {
    for (args, meant) in [
        (&["run", "--wiat", "5s", "x", "--", "true"][..], "did you mean '--wait'?"),
        (&["status", "--jsno", "x"], "did you mean '--json'?"),
        (&["statsu"], "did you mean 'status'?"),
        (&["run", "--kind", "fiar", "x"], "did you mean 'fair'?"),
        (&["rum", "x", "--", "true"], "did you mean 'run'?"),
        (&["--url", "redis://h", "run", "x"], "; 'run --url' exists; e.g."),
    ] {
        finish(fairlock(args)).expect(64, meant);
    }
}

/// Users of flock(1) typed its options, and were told that these are names of locks.
#[test]
fn options_of_flock_are_taken() {
    let url = alone();
    let run = |args: &[&str]| finish(fairlock([&["run", "--url", &url], args].concat()));
    for args in [
        &["-w", "5", "x", "--", "true"][..],
        &["-w0.5", "x", "--", "true"],
        &["--timeout=1m", "x", "--", "true"],
        &["-n", "x", "--", "true"],
        &["-nE", "9", "x", "--", "true"],
        &["--nb", "x", "--", "true"],
        &["-s", "y", "--", "true"],
        &["x", "-c", "test -n \"$FAIRLOCK_TOKEN\" && true"],
        &["--once-per", "0", "x", "-c", "true"],
    ] {
        run(args).expect(0, "");
    }
    run(&["x", "-c", "exit 3"]).expect(3, "");
    run(&["x", "--command", "exit 3"]).expect(3, "");
    for (shell, wanted) in [("", "/bin/sh\n"), ("/bin/bash", "/bin/bash\n")] {
        let mut line = fairlock(["run", "--url", &url, "x", "-c", "echo $0"]);
        line.env("SHELL", shell);
        assert_eq!(finish(line).stdout, wanted);
    }
    for (args, reason) in [
        (&["-n", "--wait", "5s", "x", "--", "true"][..], "cannot be used with"),
        (&["-n", "-w", "5", "x", "--", "true"], "cannot be used with"),
        (&["x", "-c", "true", "--", "true"], "cannot be used with"),
        (&["-w", "soon", "x", "--", "true"], "a duration starts with a number"),
        (&["-n", "x", "true"], "true: a command stands behind `--`: `fairlock run x -- true ...`"),
    ] {
        run(args).expect(64, reason);
    }
}

/// Without the `--`, `fairlock run nightly sh -c LINE` held the locks `nightly` and `sh`.
#[test]
fn a_command_without_dashes_is_refused_before_anything_is_written() {
    let folder = TempDir::new();
    let store = format!("sqlite:{}/locks.db", folder.path().display());
    for (args, meant) in [
        (
            &["nightly", "sh", "-c", "sleep 3"][..],
            "sh: a command stands behind `--`: `fairlock run nightly -- sh",
        ),
        (&["-n", "nightly", "./x.sh", "-c", "it's"], "./x.sh: a command stands behind `--`"),
        (
            &["nightly", "-c", "echo $1", "x"],
            "; several locks need a command too, and -c takes one name",
        ),
        (&["--wait", "5s", "nightly", "echo", "hi"], "echo: a command stands behind `--`"),
    ] {
        let mut run = fairlock(["run"]);
        run.args(args).env("FAIRLOCK_URL", &store);
        finish(run).expect(64, meant);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "{args:?}");
    }
    // One name, and a line; several, and a command.
    finish(fairlock(["run", "--url", &store, "a", "-c", "exit 3"])).expect(3, "");
    finish(fairlock(["run", "--url", &store, "a", "b", "--", "sh", "-c", "exit 4"])).expect(4, "");
}

/// `-n` does not wait, and `-E` is the code of a lock that is taken.
#[test]
fn flocks_way_to_skip_a_taken_lock() {
    let (url, folder) = (alone(), TempDir::new());
    let go = folder.path().join("go");
    let mut holder = Running::start(run_script(&url, &[], "x", &hold_until(&go)));
    assert_eq!(holder.line(), "holding");
    for wait in [&["-n"][..], &["-w", "0.1"]] {
        let late =
            fairlock([&["run", "--url", &url, "-E", "9"], wait, &["x", "--", "true"]].concat());
        finish(late).expect(9, "x");
    }
    fs::write(&go, "").expect("the folder is there");
    holder.wait().expect(0, "");
}

/// Users of flock, consul or etcdctl got messages about names of locks, or about `unlock`.
#[test]
fn options_of_other_programs_are_answered() {
    for (args, meant) in [
        (&["lock", "x", "true"][..], "; did you mean 'run'?; e.g. fairlock run"),
        (&["flock", "x", "true"], "; did you mean 'run'?; e.g. fairlock run"),
        (&["run", "-u", "x", "--", "true"], "; flock's -u has no counterpart: a lock ends with"),
        (&["elect", "-l", "x"], "; who leads is shown by `fairlock leader --watch`; e.g."),
        (&["run", "-try=10s", "x", "--", "true"], "; consul's -try is `--wait 10s` here; e.g."),
        (&["run", "-timeout=5s", "x", "true"], "; consul's -timeout is `--wait 5s` here; e.g."),
        (&["run", "-name=foo", "--", "true"], "; consul's -name is `--label foo` here; e.g."),
        (&["run", "-n=2", "x", "--", "true"], "; consul's -n is `--permits 2` here"),
        (&["run", "-n", "3", "x", "--", "true"], "consul's -n is `--permits 3` here, flock's is"),
        (&["run", "--try", "5s", "x", "--", "true"], "; consul's -try is `--wait 5s` here; e.g."),
        // A file of flock's.
        (&["/tmp/lock", "-c", "echo hi"], "'/tmp/lock'; e.g. fairlock run nightly -- "),
        // These printed help, with code 0: a job that was moved so never ran, and nobody was told.
        (&["run", "-http-addr=h:8500", "x", "--", "true"], "; consul's -http-addr is `--url` here"),
        (&["run", "-shell=false", "x", "./x.sh"], "; consul's -shell is not needed here"),
        // It held a lock `9` for ever.
        (&["run", "-n", "9"], "9: flock's descriptor of a script has no counterpart"),
    ] {
        finish(fairlock(args)).expect(64, meant);
    }
}

/// The message used the library's name for it, `watchdog_lease`, which nobody has typed.
#[test]
fn a_ttl_that_is_too_short_is_named_as_it_was_typed() {
    let outcome = finish(fairlock(["run", "--ttl", "200ms", "x", "--", "true"]));
    outcome.expect(64, "invalid value '200ms' for '--ttl <DURATION>': must be 300ms or longer");
    let url = alone();
    finish(fairlock(["run", "--url", &url, "--ttl", "300ms", "x", "--", "true"])).expect(0, "");
}

/// The options that choose a store filled half a page of each help: the short help has only the first, and leads to the
/// others.
#[test]
fn d29_short_help_is_short() {
    for command in ["run", "status", "list", "top", "unlock"] {
        let [short, long] = ["-h", "--help"].map(|how| finish(fairlock([command, how])).stdout);
        for option in ["--password-file", "--scope", "--config"] {
            let line = format!("\n      {option} <");
            assert!(!short.contains(&line) && long.contains(&line), "{command} {option}: {short}");
        }
        assert!(
            short.contains("--url <URL>") && short.contains("see more with '--help'"),
            "{short}"
        );
        let more = format!("\nSee `fairlock {command} --help` for all options and exit codes.\n");
        assert!(short.contains(&more) && !long.contains(&more), "{short}");
        // `help COMMAND` is the same page.
        assert_eq!(finish(fairlock(["help", command])).stdout, long);
    }
}

/// One screen and three, of an ordinary terminal. What the last line says of the store depends on the user's home, so the
/// store is named here.
#[test]
fn help_fits_one_screen_and_three() {
    const COLUMNS_MAX: usize = 100;
    let mut commands = vec![Vec::<String>::new()];
    let mut seen = BTreeSet::new();
    while let Some(command) = commands.pop() {
        let pages = [("-h", 50), ("--help", 150)].map(|(how, lines_max)| {
            let mut help = fairlock(command.iter().map(String::as_str).chain([how]));
            help.env("FAIRLOCK_URL", "redis://locks.example").env("COLUMNS", "200");
            let outcome = finish(help);
            outcome.expect(0, "");
            let page = outcome.stdout;
            let lines = page.lines().count();
            assert!(lines <= lines_max, "{command:?} {how}: {lines} lines:\n{page}");
            let widest = page.lines().max_by_key(|line| line.chars().count()).expect("a line");
            assert!(widest.chars().count() <= COLUMNS_MAX, "{command:?} {how}: {widest}");
            page
        });
        // An option that takes a second line is continued in the column of the texts.
        let [short, long] = pages;
        let continued = short.lines().find(|line| line.starts_with(&" ".repeat(12)));
        assert_eq!(continued, None, "{command:?} -h");
        let all = long.split_once("\nCommands:\n").map_or("", |(_, all)| all);
        for line in all.lines().take_while(|line| !line.is_empty()) {
            let name = line.split_whitespace().next().expect("a name").to_owned();
            if name != "help" {
                commands.push([&command[..], &[name]].concat());
            }
        }
        seen.insert(command.join(" "));
    }
    for name in COMMANDS {
        assert!(seen.contains(*name), "{name}: {seen:?}");
    }
}

/// The last holder's token was shown as if somebody held the lock.
#[test]
fn d29_the_token_of_a_free_lock_is_the_last_one() {
    let store = alone();
    let token = "echo $FAIRLOCK_TOKEN";
    let token = finish(fairlock(["run", "--url", &store, "x", "--", "sh", "-c", token])).stdout;
    let shown = finish(fairlock(["status", "--url", &store, "x"])).stdout;
    let start = format!("x: free\n  last token {}, of 20", token.trim_end());
    assert!(shown.starts_with(&start) && shown.contains("Z, "), "{shown}");
}

/// The common cases come first, and the help names the store that would be used.
#[test]
fn help_begins_with_examples() {
    for (args, first) in [
        (&["--help"][..], "fairlock run nightly -- ./backup.sh"),
        (&["-h"], "fairlock run nightly -- ./backup.sh"),
        (&["run", "--help"], "fairlock run nightly -- ./backup.sh"),
        (&["help", "status"], "fairlock status nightly"),
    ] {
        let mut command = fairlock(args);
        command.env("FAIRLOCK_URL", "redis://user:canary@locks.example");
        let help = finish(command).stdout;
        let (before, _) = help.split_once("Options:").expect("options");
        let (_, examples) = before.split_once("Examples:\n  ").expect("examples");
        assert!(examples.starts_with(first), "{help}");
        let store =
            "redis://user@locks.example, seen by all hosts that use it; from FAIRLOCK_URL\n";
        assert!(help.ends_with(&format!("Store:\n  {store}")), "{help}");
        assert!(!help.contains('\x1b'), "no colours in a pipe");
    }
}

/// Help works with a broken configuration, and reports it.
#[test]
fn help_survives_a_broken_configuration() {
    let mut command = fairlock(["--help"]);
    command.env("FAIRLOCK_CONFIG", "/no/such/file");
    let outcome = finish(command);
    outcome.expect(0, "");
    assert!(
        outcome
            .stdout
            .ends_with("Store:\n  none: /no/such/file: No such file or directory (os error 2) (the configuration file)\n"),
        "{outcome:?}"
    );
}

/// `--help` names every exit code that a script can get.
#[test]
fn help_documents_the_exit_codes() {
    let help = finish(fairlock(["run", "--help"])).stdout;
    for code in ["64", "69", "75", "76", "77", "126/127", "128 + n"] {
        assert!(help.contains(code), "{code} is missing in:\n{help}");
    }
    assert!(!help.contains("__exec"), "{help}");
    // Codes that a command has and its help omitted.
    for (command, texts) in [
        (
            "run",
            &[
                "69       the store cannot be reached, or there is none; ",
                "70       internal error; an answer or a file that is not fairlock's; stdout cannot",
                "76       the lock was lost or in doubt, or it is not known whether it was released",
                "77       access denied by the store, or no encrypted connection to a verified server",
            ][..],
        ),
        (
            "status",
            &["or there is none", "70       internal error; ", "or no encrypted connection"],
        ),
        (
            "unlock",
            &["or there is none", "70       internal error; ", "or no encrypted connection"],
        ),
        ("wait", &["or there is none", "70       internal error; ", "or no encrypted connection"]),
        ("latch", &["or there is none", "70       internal error; ", "or no encrypted connection"]),
        ("list", &["64, 69, 70 and 77 as of", "128 + n"]),
        ("top", &["64, 69, 70 and 77 as of", "128 + n"]),
        ("demo", &["1        a claim did not hold", "70       internal error; "]),
    ] {
        let help = finish(fairlock([command, "--help"])).stdout;
        for text in texts {
            assert!(help.contains(text), "{command}: {text} is missing in:\n{help}");
        }
    }
}

#[test]
fn the_url_may_come_from_the_environment() {
    let mut command = fairlock(["run", "x", "--", "true"]);
    command.env("FAIRLOCK_URL", alone());
    finish(command).expect(0, "");

    // The command line takes precedence.
    let mut command = fairlock(["run", "--scope", "fleet", "--url", "memory:", "x", "--", "true"]);
    command.env("FAIRLOCK_URL", "redis://127.0.0.1:1");
    finish(command).expect(64, "one process only");
}

#[test]
fn values_that_are_not_utf8_are_refused_without_a_panic() {
    let odd = OsStr::from_bytes(b"redis://u:canary\xff@h");
    let mut command = fairlock(["run", "x", "--", "true"]);
    command.env("FAIRLOCK_URL", odd);
    finish(command).expect(64, "not UTF-8");

    let mut command = fairlock(["run", "--url"]);
    command.arg(odd).args(["x", "--", "true"]);
    finish(command).expect(64, "not UTF-8");

    let mut command = fairlock(["run", "--wait"]);
    command.arg(odd).args(["x", "--", "true"]);
    finish(command).expect(64, "UTF-8");
}

/// The JSON form is a contract.
#[test]
fn status_of_a_free_lock() {
    let outcome = finish(fairlock(["status", "--url", "memory:", "--json", "x"]));
    outcome.expect(0, "");
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["name"], "x");
    assert_eq!(json["held"], false);
    assert_eq!(json["queue"], serde_json::json!([]));
    assert_eq!(json["queue_len"], 0);
    for field in ["name_hex", "holder", "ttl_ms"] {
        assert!(json.get(field).is_some_and(serde_json::Value::is_null), "{field}: {json}");
    }
    assert!(json.get("token").is_some(), "{json}");
    assert_eq!(outcome.stdout.lines().count(), 1);
}

#[test]
fn status_without_a_name_tells_of_the_store() {
    let outcome = finish(fairlock(["status", "--url", "memory:"]));
    assert_eq!(outcome.stdout, "store: memory:, seen by one process only; from --url\n");
    let outcome = finish(fairlock(["status", "--json", "--url", "redis://u:canary@127.0.0.1:1/2"]));
    outcome.expect(0, "");
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let store = serde_json::json!({
        "url": "redis://u@127.0.0.1:1/2", "scope": "fleet", "source": "argument", "file": null,
    });
    assert_eq!(json, serde_json::json!({ "schema": 1, "store": store }));

    // With a name, the store is named too.
    let shown = finish(fairlock(["status", "--url", "memory:", "x"])).stdout;
    assert!(shown.ends_with("\n  in memory:, seen by one process only; from --url\n"), "{shown}");
    let shown = finish(fairlock(["status", "--json", "--url", "memory:", "x"])).stdout;
    let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(json["store"]["scope"], "process");
}

#[test]
fn status_of_a_name_that_is_not_utf8() {
    let mut command = fairlock(["status", "--url", "memory:", "--json"]);
    command.arg(OsStr::from_bytes(b"a\xff"));
    let json: serde_json::Value = serde_json::from_str(&finish(command).stdout).unwrap();
    assert_eq!(json["name"], "a\u{fffd}");
    assert_eq!(json["name_hex"], "61ff");
}

#[test]
fn the_demo_holds_its_claims() {
    let outcome = finish(fairlock(["demo"]));
    outcome.expect(0, "");
    for line in ["served: 1 2 3 4 5", "served: 2 4", "4 read", "it was given", "All claims held."] {
        assert!(outcome.stdout.contains(line), "{outcome:?}");
    }
}

/// flock's options for what is so anyway were refused.
#[test]
fn options_of_flock_without_effect_are_taken() {
    let url = alone();
    for options in [&["-x"][..], &["-e"], &["--exclusive"], &["-o"], &["-F"], &["-xn"], &["-xo"]] {
        finish(run_script(&url, options, "x", "true")).expect(0, "");
    }
}
