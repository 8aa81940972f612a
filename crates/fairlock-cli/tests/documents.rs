//! Runs the commands in the documents exactly as written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;
use fairlock_testkit::tls::{Ca, Files};

use crate::fixture::{Running, fairlock, finish, neutral, with_default_signals};

/// The server of all examples.
const EXAMPLE_URL: &str = "redis://locks.example:6379";

/// The encrypted server of the examples.
const ENCRYPTED_URL: &str = "rediss://locks.example:6380?ca=/etc/fairlock/ca.pem";

/// The documents that show commands.
const DOCUMENTS: [&str; 4] =
    ["README.md", "docs/at-3-am.md", "docs/configuration.md", "docs/manual.md"];

/// Lines of `sh` blocks that begin with the program's name.
fn commands(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(path).expect("it is there");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("fairlock "));
    lines.map(str::to_owned).collect()
}

#[test]
fn documented_commands_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (files, ca) = (Files::default(), Ca::new("ours"));
    let identity = files.identity("server", &ca.server(), &ca);
    let builder = Server::builder(Generation::Redis70).tls(&identity);
    let Some(encrypted) = builder.arg("--tls-auth-clients", "optional").start() else { return };
    let encrypted_url = format!("{}?ca={}", encrypted.url(), identity.ca.display());
    let dir = TempDir::new();
    let backup = dir.path().join("backup.sh");
    fs::write(&backup, "#!/bin/sh\necho \"token $FAIRLOCK_TOKEN\"\n").expect("written");
    fs::set_permissions(&backup, fs::Permissions::from_mode(0o755)).expect("executable");
    let program = Path::new(env!("CARGO_BIN_EXE_fairlock"));
    let folder = program.parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a PATH"));

    let mut seen = 0;
    for line in DOCUMENTS.iter().flat_map(|document| commands(document)) {
        // Without a name it does not contact a store.
        let asks = line != "fairlock status";
        let line = line.replace(EXAMPLE_URL, &server.url()).replace(ENCRYPTED_URL, &encrypted_url);
        seen += 1;
        if line.starts_with("fairlock top") {
            watched(&line, &path);
            continue;
        }
        let mut shell = with_default_signals("sh");
        shell.args(["-c", &line]);
        shell.current_dir(dir.path()).env("PATH", &path);
        neutral(&mut shell);
        // Where a line names no server.
        shell.env("FAIRLOCK_URL", server.url());
        shell.stdin(std::process::Stdio::null());
        shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        // `unlock` needs a holder to take the lock from.
        let holder = line.starts_with("fairlock unlock").then(|| {
            let mut holder = Running::start(fairlock(["run", "--url", &server.url(), "nightly"]));
            holder.line();
            holder
        });
        let outcome = finish(shell);
        outcome.expect(0, "");
        if let Some(holder) = holder {
            holder.wait().expect(76, "nightly: the lock was lost");
        }
        if line.contains("backup.sh") {
            assert!(outcome.stdout.starts_with("token 1"), "{line}: {outcome:?}");
        } else if asks && line.starts_with("fairlock status") {
            assert!(outcome.stdout.starts_with("nightly: free\n"), "{line}: {outcome:?}");
        }
    }
    assert!(seen >= 3, "{seen} commands");
}

/// Runs it on a terminal until its screen has been seen.
fn watched(line: &str, path: &str) {
    let terminal = Terminal::start((24, 80), "sh", &["-c", line], |command| {
        command.env("PATH", path);
        neutral(command);
    });
    let Some(mut terminal) = terminal else { return };
    terminal.see("q quit");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0), "{line}");
}
