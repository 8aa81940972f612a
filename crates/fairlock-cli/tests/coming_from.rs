//! The commands in the tables of docs/coming-from.md, each run as written on a free lock.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fairlock_testkit::tempdir::TempDir;

use rustix::process::Signal;

use crate::fixture::{PROGRAM, Running, alone, fairlock, finish, neutral, with_default_signals};

/// The scripts that the commands name; each does nothing.
const SCRIPTS: [&str; 8] =
    ["backup", "check", "search", "update", "first", "second", "fetch", "scheduler"];

/// The `bash` blocks of the page: scripts that hold a lock for the rest of themselves, and for a part.
#[test]
fn scripts_that_hold_a_lock_work_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from.md");
    let page = fs::read_to_string(path).expect("it is there");
    let blocks = page.split("```bash\n").skip(1).filter_map(|rest| rest.split("```").next());
    let [whole, part] = blocks.collect::<Vec<_>>()[..] else { panic!("two scripts") };
    let folder = TempDir::new();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("the folder is ours");
        fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("the file is ours");
        file
    };
    // Each says whether the lock is free while it runs.
    let tells = "#!/bin/sh\nfairlock wait --wait-for 0 -q backup; echo \"$(basename $0) $?\"\n";
    for name in ["backup.sh", "first.sh", "second.sh"] {
        write(name, tells);
    }
    let program = Path::new(PROGRAM).parent().expect("a folder").display();
    let search = format!("{program}:{}", std::env::var("PATH").expect("a PATH"));
    let url = alone();
    let with_settings = |mut command: Command| {
        neutral(&mut command);
        command.env("FAIRLOCK_URL", &url).env("PATH", &search).current_dir(folder.path());
        command.env_remove("FAIRLOCK_NAME").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let script = |file: &Path| with_settings(with_default_signals(file.to_str().expect("UTF-8")));
    let (whole, part) = (write("whole", whole), write("part", part));
    let outcome = finish(script(&whole));
    assert_eq!((outcome.code(), &*outcome.stdout), (0, "backup.sh 75\n"), "{outcome:?}");
    let outcome = finish(script(&part));
    assert_eq!(
        (outcome.code(), &*outcome.stdout),
        (0, "first.sh 75\nsecond.sh 0\n"),
        "{outcome:?}"
    );
    // Another run holds it.
    let holder =
        fairlock(["run", "--url", &url, "backup", "--", "sh", "-c", "echo held; exec sleep 60"]);
    let mut holder = Running::start(holder);
    assert_eq!(holder.line(), "held");
    for file in [&whole, &part] {
        let outcome = finish(script(file));
        assert_eq!((outcome.code(), &*outcome.stdout), (75, ""), "{outcome:?}");
    }
    holder.signal(Signal::KILL);
}

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
