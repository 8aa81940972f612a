//! Completions and manual pages.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{fairlock, finish};

pub(crate) const COMMANDS: &[&str] = &[
    "run",
    "elect",
    "leader",
    "status",
    "list",
    "top",
    "unlock",
    "wait",
    "latch",
    "bench",
    "demo",
    "watch",
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
        for word in COMMANDS.iter().copied().chain(["conflict-exit-code", "sentinel-password-file"])
        {
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
