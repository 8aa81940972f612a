//! The commands in the tables of docs/coming-from.md, each run as written on a free lock.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{PROGRAM, alone, finish, neutral, with_default_signals};

/// The scripts that the commands name; each does nothing.
const SCRIPTS: [&str; 8] =
    ["backup", "check", "search", "update", "first", "second", "fetch", "scheduler"];

#[test]
fn every_command_of_the_tables_works() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from.md");
    let page = fs::read_to_string(path).expect("it is there");
    let spans = page.lines().filter(|line| line.starts_with("| ")).flat_map(|line| {
        line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("fairlock "))
    });
    let folder = TempDir::new();
    for name in SCRIPTS {
        let script = folder.path().join(name).with_extension("sh");
        fs::write(&script, "#!/bin/sh\n").expect("the folder is ours");
        fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("the file is ours");
    }
    let url = alone();
    let mut seen = 0;
    for span in spans.filter(|span| !span.contains("--watch")) {
        let mut command: Command = with_default_signals("sh");
        command.args(["-c", &span.replacen("fairlock", "\"$PROGRAM\"", 1)]);
        neutral(&mut command);
        command.env("FAIRLOCK_URL", &url).env("PROGRAM", PROGRAM).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let outcome = finish(command);
        // Nobody leads.
        let code = if span.starts_with("fairlock leader ") { 1 } else { 0 };
        assert_eq!(outcome.code(), code, "{span}: {outcome:?}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}
