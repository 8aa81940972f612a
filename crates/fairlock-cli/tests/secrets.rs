//! Passwords: three ways in, none out.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use fairlock_testkit::processes;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Outcome, Running, alone, eventually, fairlock, finish, hold_until};

/// Must never appear in any output.
const CANARY: &str = "canary7f3a";

/// What the command of these tests prints: everything that it could know.
const LEAK: &str = "env; tr '\\0' '\\n' </proc/$$/cmdline";

#[track_caller]
fn silent_about(canary: &str, outcome: &Outcome) {
    assert!(!outcome.stderr.contains(canary), "on stderr: {outcome:?}");
    assert!(!outcome.stdout.contains(canary), "told to the command: {outcome:?}");
}

fn with_password(url: &str, password: &str) -> String {
    url.replacen("://", &format!("://:{password}@"), 1)
}

fn leaky(options: &[&str]) -> Command {
    let mut command = fairlock(["run"]);
    command.args(options).args(["x", "--", "sh", "-c", LEAK]);
    command
}

fn server() -> Option<Server> {
    // The test kit also connects to the server, so the password is set once it runs.
    let server = Server::start(Generation::Redis70)?;
    server.client().call(&["CONFIG", "SET", "requirepass", CANARY]);
    Some(server)
}

#[test]
fn three_ways_in() {
    let Some(server) = server() else { return };
    let url = server.url();
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, format!("{CANARY}\n")).unwrap();

    let in_url = with_password(&url, CANARY);
    let mut by_variable = leaky(&["--url", &url]);
    by_variable.env("FAIRLOCK_PASSWORD", CANARY);
    let mut by_url_variable = leaky(&[]);
    by_url_variable.env("FAIRLOCK_URL", &in_url);
    // The file takes precedence over a wrong variable, and the variable over the URL.
    let mut by_file =
        leaky(&["--url", &with_password(&url, "wrong"), "--password-file", file.to_str().unwrap()]);
    by_file.env("FAIRLOCK_PASSWORD", "wrong");

    for command in [leaky(&["--url", &in_url]), by_variable, by_url_variable, by_file] {
        let outcome = finish(command);
        outcome.expect(0, "");
        silent_about(CANARY, &outcome);
        assert!(outcome.stdout.contains("FAIRLOCK_TOKEN="), "{outcome:?}");
    }
}

/// From a file of one line, as secrets are mounted: the newline used to be sent as a part of the
/// password.
#[test]
fn a_newline_ends_the_password_in_a_variable_too() {
    let Some(server) = server() else { return };
    for (end, code, says) in [
        ("", 0, ""),
        ("\n", 0, ""),
        ("\r\n", 0, ""),
        ("\n\n", 64, "FAIRLOCK_PASSWORD has more than one line"),
        ("\nx", 64, "FAIRLOCK_PASSWORD has more than one line"),
    ] {
        let mut command = fairlock(["status", "--url", &server.url(), "x"]);
        command.env("FAIRLOCK_PASSWORD", format!("{CANARY}{end}"));
        let outcome = finish(command);
        outcome.expect(code, says);
        silent_about(CANARY, &outcome);
    }
}

/// The login of the Sentinels, which differs from the servers': in the URL, with its password, a file or a variable. The
/// command gets no password.
#[test]
fn the_sentinels_login() {
    const OTHER: &str = "canary9b1c";
    let Some(server) = server() else { return };
    let watch = format!(
        "sentinel monitor locks 127.0.0.1 {} 1\nsentinel auth-pass locks {CANARY}\n",
        server.port()
    );
    let sentinel = Server::builder_of_sentinel(Generation::Redis70).config(&watch).start().unwrap();
    let rules = ["ACL", "SETUSER", "ann", "on", &format!(">{OTHER}"), "&*", "+@all"];
    assert_eq!(sentinel.client().call(&rules).text(), "OK");
    assert_eq!(sentinel.client().call(&["ACL", "SETUSER", "default", "off"]).text(), "OK");
    let url = format!("redis+sentinel://{}/locks", sentinel.addr());
    let dir = TempDir::new();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (of_servers, of_sentinels) = (file("servers", CANARY), file("sentinels", OTHER));

    let with_login = |login: &str| {
        let url = format!("{url}?sentinel-username=ann&{login}");
        let mut command = leaky(&["--password-file", &of_servers]);
        command.env("FAIRLOCK_URL", url).env("SENTINELS_WORD", OTHER);
        command
    };
    for login in [
        format!("sentinel-password={OTHER}"),
        format!("sentinel-password-file={of_sentinels}"),
        "sentinel-password-env=SENTINELS_WORD".to_owned(),
    ] {
        let mut command = with_login(&login);
        if !login.contains("-env") {
            command.env_remove("SENTINELS_WORD");
        }
        let outcome = finish(command);
        outcome.expect(0, "");
        silent_about(CANARY, &outcome);
        silent_about(OTHER, &outcome);
        assert!(outcome.stdout.contains("FAIRLOCK_TOKEN="), "{outcome:?}");
    }
    let outcome = finish(with_login(&format!("sentinel-password={CANARY}")));
    outcome.expect(77, "Sentinel");
    silent_about(CANARY, &outcome);
    let mut none = leaky(&["--password-file", &of_servers]);
    none.env("FAIRLOCK_URL", &url);
    finish(none).expect(77, "`sentinel-password-file=FILE` in the URL");
}

/// The URL may say where the password is: then it is no secret, and the command keeps it; the
/// variable is one.
#[test]
fn urls_that_say_where_the_password_is() {
    let Some(server) = server() else { return };
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, format!("{CANARY}\n")).unwrap();
    let by_file = format!("{}?password-file={}", server.url(), file.display());
    let by_variable = format!("{}?password-env=LOCKS_WORD", server.url());
    for url in [by_file, by_variable] {
        let mut command = leaky(&[]);
        command.env("FAIRLOCK_URL", &url).env("LOCKS_WORD", CANARY);
        let outcome = finish(command);
        outcome.expect(0, "");
        assert!(outcome.stdout.contains(&format!("FAIRLOCK_URL={url}\n")), "{outcome:?}");
        if url.contains("password-env") {
            silent_about(CANARY, &outcome);
        }
    }
}

/// F39: the password is changed, in the file and on the server, while the command runs: the next
/// connection uses the new one, and the lock is kept.
#[test]
fn f39_a_password_file_that_changes_while_the_command_runs() {
    let Some(server) = server() else { return };
    let dir = TempDir::new();
    let (file, go) = (dir.path().join("password"), dir.path().join("go"));
    fs::write(&file, CANARY).unwrap();
    let mut raw = server.client();
    raw.call(&["AUTH", CANARY]);
    let mut command = fairlock(["run", "--url", &server.url(), "--password-file"]);
    command.arg(&file).args(["x", "--", "sh", "-c", &hold_until(&go)]);
    let mut running = Running::start(command);
    assert_eq!(running.line(), "holding");

    fs::write(&file, "next5d2b").unwrap();
    raw.call(&["CONFIG", "SET", "requirepass", "next5d2b"]);
    let connections =
        |raw: &mut Raw| raw.call(&["CLIENT", "LIST"]).text().matches("name=fairlock").count();
    assert_eq!(connections(&mut raw), 2, "commands and inbox");
    raw.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    raw.call(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]);
    eventually("both connections are back", || connections(&mut raw) == 2);
    fs::write(&go, "").unwrap();
    running.wait().expect(0, "");
}

/// The command may use the same server, with a password of its own.
#[test]
fn the_command_sees_the_url_without_the_password() {
    let mut command = leaky(&["--url", &alone()]);
    command.env("FAIRLOCK_URL", format!("redis://user:{CANARY}@host:1/2"));
    command.env("FAIRLOCK_PASSWORD", CANARY);
    let outcome = finish(command);
    outcome.expect(0, "");
    silent_about(CANARY, &outcome);
    assert!(outcome.stdout.contains("FAIRLOCK_URL=redis://user@host:1/2\n"), "{outcome:?}");
    assert!(!outcome.stdout.contains("FAIRLOCK_PASSWORD"), "{outcome:?}");

    // The Sentinels' password is among the options.
    let mut command = leaky(&["--url", &alone()]);
    command.env("FAIRLOCK_URL", format!("redis+sentinel://h/m?sentinel-password={CANARY}"));
    let outcome = finish(command);
    silent_about(CANARY, &outcome);
    assert!(outcome.stdout.contains("FAIRLOCK_URL=redis+sentinel://h/m\n"), "{outcome:?}");
}

#[test]
fn denied_without_a_word_about_the_password() {
    let Some(server) = server() else { return };
    let url = server.url();
    let wrong = "wrong9c1e";
    finish(leaky(&["--url", &url])).expect(77, "fairlock: ");
    let mut by_variable = leaky(&["--url", &url]);
    by_variable.env("FAIRLOCK_PASSWORD", wrong);
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, wrong).unwrap();
    let by_file = leaky(&["--url", &url, "--password-file", file.to_str().unwrap()]);
    for command in [leaky(&["--url", &with_password(&url, wrong)]), by_variable, by_file] {
        let outcome = finish(command);
        outcome.expect(77, "fairlock: ");
        silent_about(wrong, &outcome);
    }
}

/// The text of the server was cut and cleaned before the password was looked for in it.
#[test]
fn a_server_that_repeats_its_input_reveals_no_password() {
    let unknown = |password: &str| {
        format!("unknown command HELLO, with args beginning with: 3 AUTH default {password}")
    };
    let long = CANARY.repeat(20);
    let cut = unknown(&long[..128]);
    let tab = format!("{CANARY}\tx");
    for (password, said) in [
        (&long, unknown(&long)),
        // The server cuts it.
        (&long, cut),
        (&long, format!("{}{long}", "no user ".repeat(20))),
        (&tab, format!("no such user {tab}")),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        // Ends with this process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                // A login is two commands in one message.
                let _ = stream.write_all(format!("-ERR {said}\r\n").repeat(2).as_bytes());
            }
        });
        let mut command = fairlock(["status", "--url", &url, "x"]);
        command.env("FAIRLOCK_PASSWORD", password);
        let outcome = finish(command);
        outcome.expect(70, "the server refused the call: ");
        silent_about(&CANARY[..6], &outcome);
    }
}

#[test]
fn a_misspelt_option_of_a_url_is_shown_without_its_value() {
    for option in ["pasword", "passwd", "pass", "pwd", "auth", "pw", "token", "psw", "x"] {
        let url = format!("redis://127.0.0.1:1/0?{option}={CANARY}");
        for args in [&["status", "--url", &url, "x"][..], &["status", "--url", &url, &url]] {
            let outcome = finish(fairlock(args));
            outcome.expect(64, "takes only the options");
            silent_about(CANARY, &outcome);
        }
    }
}

#[test]
fn every_kind_of_failure_keeps_the_secret() {
    let secret = format!("redis://user:{CANARY}@127.0.0.1:1");
    let odd = format!("redis://user:{CANARY}@:99999/x?y=z");
    let option = format!("redis+sentinel://127.0.0.1:1/m?sentinel-password={CANARY}");
    let alone = alone();
    for args in [
        &["status", "--url", &secret, "x"][..],
        &["status", "--url", &odd, "x"],
        // The URL in the wrong place.
        &["status", &secret, &secret],
        &["status", &option, &option],
        &["run", "--wait", &option, "x", "--", "true"],
        &["run", &secret, &secret],
        &["run", "--wait", &secret, "x", "--", "true"],
        &["run", "--kind", &secret, "x", "--", "true"],
        &[&secret],
        &["run", "--scope", "fleet", "--url", "memory:", &secret, "--", "true"],
        &["run", "--scope", &secret, "x", "--", "true"],
        &["run", "--url", &alone, "x", "--", &secret],
        &["run", "--url", &alone, "--password-file", &secret, "x", "--", "true"],
    ] {
        let outcome = finish(fairlock(args));
        assert_ne!(outcome.code(), 0, "{args:?}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {outcome:?}");
        silent_about(CANARY, &outcome);
    }
}

#[test]
fn password_files_that_are_none() {
    let dir = TempDir::new();
    let file = dir.path().join("password");
    let path = file.to_str().unwrap();
    let args = ["status", "--url", "memory:", "--password-file", path, "x"];
    finish(fairlock(args)).expect(64, "No such file");
    for text in ["", "\n", "two\nlines\n"] {
        fs::write(&file, text).unwrap();
        finish(fairlock(args)).expect(64, "not one line");
    }
}

/// What the kernel shows of a process to its owner; the arguments it shows to everybody.
#[derive(Debug)]
struct Seen {
    process: u32,
    arguments: String,
    environment: String,
}

/// The descendants of `root`, and `root` itself first.
fn family(root: u32) -> Vec<Seen> {
    // A process may end meanwhile.
    let parents = processes::all().into_iter().map(|process| (process, processes::parent(process)));
    let parents: Vec<_> = parents.collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == Some(parent)).map(|(child, _)| child));
        next += 1;
    }
    let read = |process: u32, file: &str| {
        let bytes = fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let see = |process: u32| Seen {
        arguments: read(process, "cmdline"),
        environment: read(process, "environ"),
        process,
    };
    found.into_iter().map(see).collect()
}

/// Runs a command under the lock and inspects all of its processes; `argument` is the command's
/// own.
#[track_caller]
fn look_at_the_family(mut command: Command, argument: &str) -> Vec<Seen> {
    let dir = TempDir::new();
    let go = dir.path().join("go");
    command.args(["x", "--", "sh", "-c", &hold_until(&go), argument]);
    let mut running = Running::start(command);
    assert_eq!(running.line(), "holding");
    let mut seen = Vec::new();
    // The command, its guardian, and now and then a `sleep` of the command.
    eventually("there are at least three processes", || {
        seen = family(running.pid());
        seen.len() >= 3 && seen.iter().all(|one| !one.arguments.is_empty())
    });
    fs::write(&go, "").expect("a file");
    running.wait().expect(0, "");
    seen
}

/// D57: FAIRLOCK_PASSWORD, which is meant for all stores of a shell, came before the password that was
/// typed for this one.
#[test]
fn a_password_in_a_typed_url_comes_before_the_variable() {
    let Some(server) = server() else { return };
    let run = |password: &str| {
        let url = with_password(&server.url(), password);
        let mut command = fairlock(["run", "--url", &url, "x", "--", "true"]);
        command.env("FAIRLOCK_PASSWORD", if password == CANARY { "wrong" } else { CANARY });
        finish(command)
    };
    run(CANARY).expect(0, "");
    run("typo").expect(77, "; the password is from --url");
    // A URL that nobody has typed now.
    let mut by_variables = fairlock(["run", "x", "--", "true"]);
    by_variables.env("FAIRLOCK_URL", with_password(&server.url(), "old"));
    by_variables.env("FAIRLOCK_PASSWORD", CANARY);
    finish(by_variables).expect(0, "");
}

/// D57: nobody noticed that a server asks for no password, so that everybody can use it.
#[test]
fn a_password_that_the_server_does_not_ask_for_is_told() {
    let Some(open) = Server::start(Generation::Redis70) else { return };
    let run = |url: &str| {
        let mut command = fairlock(["run", "--verbose", "--url", url, "x", "--", "true"]);
        command.env("FAIRLOCK_PASSWORD", CANARY);
        finish(command)
    };
    let told = "a password is given, but the server asks for none";
    let asked = run(&open.url());
    assert!(asked.code() == 0 && asked.stderr.contains(told), "{asked:?}");
    let asked = run(&format!("{}?on-password=ignore", open.url()));
    assert!(!asked.stderr.contains(told), "{asked:?}");
    let asked = run(&format!("{}?on-password=refuse", open.url()));
    assert_eq!(asked.code(), 77, "{asked:?}");
    assert!(asked.stderr.contains("without any password configured"), "{asked:?}");
    let Some(closed) = server() else { return };
    let asked = run(&closed.url());
    assert_eq!(asked.code(), 0, "{asked:?}");
    assert!(!asked.stderr.contains(told), "{asked:?}");
}

/// F88: however the password is passed in, no process of ours shows it in its arguments, and none
/// below us in its environment. Only a user who passes it in `--url` shows it, to every user of the
/// host.
#[test]
fn f88_the_kernel_shows_the_password_to_nobody() {
    let Some(server) = server() else { return };
    let url = server.url();
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, format!("{CANARY}\n")).unwrap();
    let run = |options: &[&str]| {
        let mut command = fairlock(["run"]);
        command.args(options);
        command
    };
    let mut by_url_variable = run(&[]);
    by_url_variable.env("FAIRLOCK_URL", with_password(&url, CANARY));
    let mut by_variable = run(&["--url", &url]);
    by_variable.env("FAIRLOCK_PASSWORD", CANARY);
    // Unused, as `--url` takes precedence, and still not for the command.
    let mut both = run(&["--url", &url]);
    both.env("FAIRLOCK_URL", format!("redis://u:{CANARY}@elsewhere"));
    both.env("FAIRLOCK_PASSWORD", CANARY);
    let by_file = run(&["--url", &url, "--password-file", file.to_str().unwrap()]);
    let in_arguments = run(&["--url", &with_password(&url, CANARY)]);
    for (way, command, shows_itself) in [
        ("FAIRLOCK_URL", by_url_variable, false),
        ("FAIRLOCK_PASSWORD", by_variable, false),
        ("both", both, false),
        ("--password-file", by_file, false),
        ("--url", in_arguments, true),
    ] {
        let seen = look_at_the_family(command, "no secret");
        for (generation, one) in seen.iter().enumerate() {
            let bytes = one.arguments.len() + one.environment.len();
            println!("searched: {way}: process {}: {bytes} bytes", one.process);
            let is_us = generation == 0;
            let in_arguments = one.arguments.contains(CANARY);
            assert_eq!(in_arguments, is_us && shows_itself, "{way}: {one:?}");
            // It came from our own environment.
            assert!(is_us || !one.environment.contains(CANARY), "{way}: {one:?}");
        }
        let told = seen.iter().any(|one| one.environment.contains("FAIRLOCK_TOKEN="));
        assert!(told, "{way}: the command's environment was not seen");
    }
    // Would it be found? In the command's own argument, and in a variable that is not ours.
    let mut planted = run(&["--url", &alone()]);
    planted.env("SOMEBODY_ELSES", CANARY);
    let seen = look_at_the_family(planted, CANARY);
    assert!(seen[1..].iter().any(|one| one.arguments.contains(CANARY)), "{seen:?}");
    assert!(seen[1..].iter().any(|one| one.environment.contains(CANARY)), "{seen:?}");
}

/// F88: every way to fail with a password that was accepted, or was not, on stderr.
#[test]
fn f88_no_failure_at_a_server_shows_the_password() {
    let Some(server) = server() else { return };
    let url = with_password(&server.url(), CANARY);
    let mut raw = server.client();
    raw.call(&["AUTH", CANARY]);
    raw.call(&["SET", "text", "no lock"]);
    raw.call(&["SET", "redisson_lock_token:{series}", "no number"]);
    let refused = format!("redis://u:{CANARY}@127.0.0.1:1");
    let nowhere = format!("redis://u:{CANARY}@no-such-host.invalid");
    let hold = "echo holding; exec sleep 60";
    let mut busy = Running::start(fairlock(["run", "--url", &url, "busy", "--", "sh", "-c", hold]));
    assert_eq!(busy.line(), "holding");
    let no_database = format!("{url}99999");
    for (args, code) in [
        (&["run", "--url", &url, "text", "--", "true"][..], 64),
        (&["run", "--url", &url, "series", "--", "true"], 64),
        (&["status", "--url", &url, "text"], 64),
        (&["unlock", "--force", "--url", &url, "text"], 64),
        (&["run", "--url", &url, "--wait", "0", "busy", "--", "true"], 75),
        (&["run", "--url", &url, "--wait", "50ms", "busy", "--", "true"], 75),
        (&["run", "--url", &url, "free", "--", "/no/such/command"], 127),
        (&["run", "--url", &url, "free", "--", "/"], 126),
        (&["run", "--url", &url, "--lease", "1ms", "free", "--", "true"], 64),
        (&["run", "--url", &url, "fairlock_x", "--", "true"], 64),
        (&["status", "--url", &refused, "x"], 69),
        (&["status", "--url", &nowhere, "x"], 69),
        (&["status", "--url", &no_database, "x"], 64),
    ] {
        let outcome = finish(fairlock(args));
        println!("searched: {code}: {} {}", outcome.code(), outcome.stderr.trim_end());
        assert_eq!(outcome.code(), code, "{args:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("fairlock: "), "{args:?}: {outcome:?}");
        silent_about(CANARY, &outcome);
    }
}
