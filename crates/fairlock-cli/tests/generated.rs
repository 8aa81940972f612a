//! Completions and manual pages.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;

use crate::fixture::{PROGRAM, alone, fairlock, finish, neutral, run_script};

pub(crate) const COMMANDS: &[&str] = &[
    "run",
    "elect",
    "leader",
    "status",
    "list",
    "top",
    "unlock",
    "wait",
    "watch",
    "latch",
    "demo",
    "completions",
    "man",
];

fn generated(args: &[&str]) -> String {
    let outcome = finish(fairlock(args));
    outcome.expect(0, "");
    outcome.stdout
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = generated(&["completions", shell]);
        for word in COMMANDS.iter().copied().chain(["conflict-exit-code", "password-file"]) {
            assert!(text.contains(word), "{shell}: {word}");
        }
        // Internal commands are not offered.
        for errand in ["__exec", "__guardian", "__foreground"] {
            assert!(!text.contains(errand), "{shell}: {errand}");
        }
    }
}

/// Loads the completions into a real bash and asks what it would offer.
#[test]
fn bash_completes() {
    let dir = TempDir::new();
    let file = dir.path().join("fairlock.bash");
    fs::write(&file, generated(&["completions", "bash"])).unwrap();
    let syntax = Command::new("bash").arg("-n").arg(&file).status().expect("bash is there");
    assert!(syntax.success());
    let ask = |words: &str, at: usize| {
        let script = format!(
            r#". "$0"; complete -p fairlock >&2 || exit 1
            COMP_WORDS=({words}); COMP_CWORD={at}
            _fairlock_or_command fairlock "${{COMP_WORDS[{at}]}}" "${{COMP_WORDS[{at} - 1]}}"
            echo "${{COMPREPLY[*]}}""#
        );
        let output =
            Command::new("bash").args(["--norc", "-c", &script]).arg(&file).output().unwrap();
        let registered = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(registered.contains("-F _fairlock_or_command "), "{registered}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask("fairlock st", 1), "status");
    assert_eq!(ask("fairlock unl", 1), "unlock");
    assert_eq!(ask("fairlock run --conf", 2), "--config --conflict-exit-code");
    assert_eq!(ask("fairlock run --kind ''", 3), "fair plain simple rw semaphore");
    assert_eq!(ask("fairlock __", 1), "");
}

/// After `--` another command line begins; there our own options used to be offered, and no files.
#[test]
fn d29_bash_completes_the_command_that_is_run() {
    let dir = TempDir::new();
    let file = dir.path().join("fairlock.bash");
    fs::write(&file, generated(&["completions", "bash"])).unwrap();
    fs::write(dir.path().join("backup-of-ours.sh"), "").unwrap();
    let ask = |words: &str, at: usize| {
        let script = format!(
            r#". "$0"; COMP_WORDS=({words}); COMP_CWORD={at}
            _fairlock_or_command fairlock "${{COMP_WORDS[{at}]}}" "${{COMP_WORDS[{at} - 1]}}"
            echo "${{COMPREPLY[*]}}""#
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script]).arg(&file).current_dir(dir.path());
        String::from_utf8(bash.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask("fairlock run x -- backup-of", 4), "backup-of-ours.sh");
    assert!(ask("fairlock run x -- mkdi", 4).split(' ').any(|word| word == "mkdir"));
    assert_eq!(ask("fairlock run x -- cat backup-of", 5), "backup-of-ours.sh");
    assert_eq!(ask("fairlock run --wai", 2), "--wait");
}

/// What a shell, on a terminal, makes of a line and of Tab: names of locks, of the store that is named, and behind `--`
/// the command line of another program.
fn completes(shell: &str, args: &[&str], load: &str) {
    if Command::new(shell).arg("--version").output().is_err() {
        return fairlock_testkit::skip(shell);
    }
    let (dir, url) = (TempDir::new(), alone());
    for name in ["job:one", "job: with a blank", "other"] {
        finish(run_script(&url, &[], name, "true")).expect(0, "");
    }
    fs::write(dir.path().join("completions"), generated(&["completions", shell])).expect("written");
    let script = dir.path().join("backup-of-ours.sh");
    fs::write(&script, "").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let program = Path::new(PROGRAM).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("a PATH"));
    let terminal = Terminal::start((24, 200), shell, args, |command| {
        command.current_dir(dir.path()).env("PATH", &path).env("HOME", dir.path());
        neutral(command);
    });
    let Some(mut terminal) = terminal else { return };
    terminal.keys(&format!("{load}; echo is''there\n"));
    terminal.see("isthere");
    for (typed, completed) in [
        // The name with a blank is not suggested, so this one is complete.
        (format!("fairlock status --url {url} job:"), "job:one"),
        (format!("fairlock run --url={url} --wait 0 oth"), " other"),
        ("fairlock run x -- ./backup-of".to_owned(), "./backup-of-ours.sh"),
        ("fairlock run x -- cat backup-of".to_owned(), "cat backup-of-ours.sh"),
        ("fairlock run x -- unsha".to_owned(), "-- unshare"),
        ("fairlock unlo".to_owned(), "fairlock unlock"),
    ] {
        terminal.keys("\x0c");
        terminal.keys(&format!("{typed}\t"));
        terminal.see(completed);
        terminal.keys("\x15");
    }
}

#[test]
fn bash_completes_names_and_commands() {
    completes("bash", &["--norc", "--noprofile", "-i"], ". ./completions");
}

#[test]
fn zsh_completes_names_and_commands() {
    completes("zsh", &["-f", "-i"], "autoload -U compinit; compinit -D -u; . ./completions");
}

#[test]
fn fish_completes_names_and_commands() {
    completes("fish", &["--no-config"], "source ./completions");
}

/// `fairlock status` waits for it for three seconds and more; nobody who presses Tab does.
#[test]
fn a_store_that_does_not_answer_suggests_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let line = format!("fairlock status --url redis://127.0.0.1:{port} ");
    // Once more if the machine was too slow.
    let in_time = (1..=5).any(|_| {
        let began = Instant::now();
        let outcome = finish(fairlock(["__names", &line]));
        outcome.expect(0, "");
        assert_eq!(outcome.stdout, "");
        began.elapsed() < Duration::from_millis(2_500)
    });
    assert!(in_time, "five times too slow");
}

/// Every page is rendered with the local renderer; groff's warnings are errors.
#[test]
fn manual_pages_render() {
    let Some(renderer) = [&["groff", "-man", "-Tutf8", "-ww", "-P-cbou"][..], &["mandoc", "-Wall"]]
        .into_iter()
        .find(|program| {
            let mut test = Command::new(program[0]);
            test.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            test.status().is_ok()
        })
    else {
        return fairlock_testkit::skip("groff or mandoc");
    };
    for page in std::iter::once(None).chain(COMMANDS.iter().copied().map(Some)) {
        let source = match page {
            None => generated(&["man"]),
            Some(command) => generated(&["man", command]),
        };
        // Six options had no description: a tag is followed by the line of its text.
        let lines: Vec<_> = source.lines().collect();
        for entry in lines.windows(3).filter(|entry| entry[0] == ".TP") {
            let is_told = !entry[2].is_empty() && !entry[2].starts_with('.');
            assert!(is_told, "{page:?}: {} says nothing", entry[1]);
        }
        let mut command = Command::new(renderer[0]);
        command.args(&renderer[1..]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{page:?}: {warnings}");
        let text = String::from_utf8(output.stdout).unwrap();
        let title =
            page.map_or_else(|| "fairlock(1)".to_owned(), |name| format!("fairlock-{name}(1)"));
        assert!(text.starts_with(&title), "{title}: {text}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "FILES", "ENVIRONMENT"] {
            assert!(text.contains(&format!("\n{section}\n")), "{title}: {section}: {text}");
        }
        assert!(text.contains("/etc/fairlock/config.toml"), "{text}");
        // The page is the same everywhere: it contains nothing of this user or this day.
        assert!(!text.contains("/root") && !text.contains("202"), "{text}");
    }
    let run = generated(&["man", "run"]);
    assert!(run.contains("fairlock run nightly") && run.contains("EXIT CODES"), "{run}");
}
