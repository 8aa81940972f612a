//! The guarded command, on a store of its own: there the lock is always free, and everything else
//! is as usual.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};

use crate::fixture::{Running, alone, eventually, fairlock, finish, is_alive, pid, run_script};

/// A script that reports that it is ready, and works until it is stopped. Its shell does not print
/// what ended the `sleep`.
const WORK: &str = "exec 2>/dev/null; echo ready; while :; do sleep 0.02; done";

fn memory(script: &str) -> Command {
    run_script(&alone(), &[], "x", script)
}

#[test]
fn exit_codes_are_the_commands_own() {
    for code in [0, 1, 7, 64, 75, 76, 255] {
        finish(memory(&format!("exit {code}"))).expect(code, "");
    }
}

#[test]
fn a_command_that_a_signal_ended() {
    for (name, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("USR1", 138)] {
        finish(memory(&format!("kill -{name} $$"))).expect(code, "");
    }
}

#[test]
fn commands_that_cannot_be_started() {
    let dir = TempDir::new();
    let plain_file = dir.path().join("plain");
    fs::write(&plain_file, "").unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/no/such/shell\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for (program, code, text) in [
        ("fairlock-test-no-such-command", 127, "fairlock-test-no-such-command: command not found"),
        (
            "a && b",
            127,
            "a && b: command not found; a line for a shell is given as `-- sh -c LINE`",
        ),
        ("/no/such/path", 127, "/no/such/path: no such file"),
        (script.to_str().unwrap(), 127, "the interpreter that its first line names was not found"),
        (plain_file.to_str().unwrap(), 126, "cannot be executed"),
        (dir.path().to_str().unwrap(), 126, "cannot be executed"),
    ] {
        let args = ["run", "--url", &alone(), "x", "--", program, "--option"];
        finish(fairlock(args)).expect(code, text);
    }
}

#[test]
fn the_command_learns_name_owner_and_token() {
    let mut command = fairlock(["run", "--url", &alone()]);
    command.arg(OsStr::from_bytes(b"na me\xff")).args(["--", "sh", "-c"]);
    command.arg(
        r#"printf %s "$FAIRLOCK_NAME" | od -An -tx1; echo $FAIRLOCK_OWNER; echo $FAIRLOCK_TOKEN"#,
    );
    let outcome = finish(command);
    outcome.expect(0, "");
    let mut lines = outcome.stdout.lines();
    assert_eq!(lines.next().unwrap().trim(), "6e 61 20 6d 65 ff");
    let (uuid, number) = lines.next().unwrap().split_once(':').unwrap();
    assert_eq!(uuid.len(), 36);
    assert!(number.parse::<u64>().is_ok());
    assert!(lines.next().unwrap().parse::<u64>().unwrap() > 0);
}

#[test]
fn arguments_pass_unchanged() {
    let mut command = fairlock(["run", "--url", &alone(), "x", "--", "printf", "%s|"]);
    command.args(["--wait", "-h", "", "a b", "$HOME", "--"]).arg(OsStr::from_bytes(b"\xc3\xa9"));
    let outcome = finish(command);
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "--wait|-h||a b|$HOME|--|\u{e9}|");
}

#[test]
fn standard_streams_are_inherited() {
    let mut command = memory("cat; echo err >&2");
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"through");
    assert_eq!(output.stderr, b"err\n");
}

#[test]
fn the_command_has_a_group_of_its_own() {
    let outcome = finish(memory(r#"echo $$; cut -d" " -f5 /proc/$$/stat"#));
    let ids: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(ids[0], ids[1], "{outcome:?}");
}

#[test]
fn signals_are_passed_on() {
    let signals = [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::CONT, "CONT"),
    ];
    for (signal, name) in signals {
        let mut running = Running::start(memory(&format!("trap 'exit 33' {name}; {WORK}")));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        running.wait().expect(33, "");
    }
}

#[test]
fn a_signal_that_ends_the_command_gives_its_code() {
    let mut running = Running::start(memory(WORK));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    running.wait().expect(143, "");
}

/// The signal goes to the whole group, as from a terminal.
#[test]
fn signals_reach_grandchildren() {
    let mut running = Running::start(memory("sleep 60 & echo $!; wait"));
    let grandchild = running.line();
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 143);
    eventually("the grandchild is gone", || !is_alive(&grandchild));
}

/// `nohup fairlock run ...` must survive what nohup protects it from.
#[test]
fn signals_ignored_on_entry_stay_ignored() {
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" HUP; exec "$0" run --url "$2" x -- sh -c "$1""#]);
    command.args([
        env!("CARGO_BIN_EXE_fairlock"),
        "echo ready; read line; echo survived",
        &alone(),
    ]);
    command.stdout(Stdio::piped());
    let (mut running, mut stdin) = Running::start_with_stdin(command);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::HUP);
    stdin.write_all(b"go on\n").unwrap();
    assert_eq!(running.line(), "survived");
    assert!(running.wait().status.success());
}

/// A command that keeps working without its lock is the worst that this program could cause.
#[test]
fn killing_fairlock_kills_the_command() {
    let mut running = Running::start(memory("sleep 60 & echo $$ $!; wait"));
    let line = running.line();
    let (command, grandchild) = line.split_once(' ').unwrap();
    assert!(is_alive(command) && is_alive(grandchild));
    running.signal(Signal::KILL);
    eventually("the command is gone", || !is_alive(command));
    eventually("what the command started is gone", || !is_alive(grandchild));
}

/// A stopped `fairlock` renews nothing and ends nothing; its guardian does.
#[test]
fn a_stopped_fairlock_does_not_let_the_command_outlive_the_lease() {
    let script = "sleep 60 & echo $$ $!; wait";
    let mut running = Running::start(run_script(&alone(), &["--lease", "1500ms"], "x", script));
    let line = running.line();
    running.signal(Signal::STOP);
    for process in line.split(' ') {
        eventually("the group is gone", || !is_alive(process));
    }
    running.signal(Signal::CONT);
    running.wait().expect(76, "lost");
}

/// As with any shell: processes that a command leaves behind on purpose are not ours to end.
#[test]
fn background_processes_survive_an_orderly_end() {
    let outcome = finish(memory("sleep 60 >/dev/null 2>&1 & echo $!"));
    outcome.expect(0, "");
    let left = outcome.stdout.trim();
    assert!(is_alive(left));
    kill_process(pid(left.parse().unwrap()), Signal::KILL).unwrap();
}

#[test]
fn a_fixed_lease_ends_the_command_before_it_runs_out() {
    let script = format!("trap 'echo asked; exit 0' TERM; {WORK}");
    let outcome = finish(run_script(&alone(), &["--lease", "6s"], "x", &script));
    outcome.expect(
        76,
        "x: the lock was about to be lost: its --lease of 6s is over; the command was ended",
    );
    assert_eq!(outcome.stdout, "ready\nasked\n");
}

#[test]
fn a_command_that_will_not_end_is_killed_with_its_group() {
    let script =
        r#"exec 2>/dev/null; trap "" TERM; sleep 60 & echo $$ $!; while :; do sleep 0.02; done"#;
    let options = ["--lease", "3s", "--lost-exit-code", "9"];
    let mut running = Running::start(run_script(&alone(), &options, "x", script));
    let line = running.line();
    running.wait().expect(9, "the command was ended");
    for process in line.split(' ') {
        eventually("the group is gone", || !is_alive(process));
    }
}

/// The command itself ends when asked; its worker needs the grace period too, and gets no more than
/// that.
#[test]
fn the_grace_is_for_the_whole_group() {
    let script = r#"exec 2>/dev/null; sh -c "trap 'sleep 0.1; echo tidied; exit' TERM; echo ready; while :; do sleep 0.02; done" & wait"#;
    // The grace is a third of the lease: on a busy machine half a second may pass before a shell
    // gets to run.
    let outcome = finish(run_script(&alone(), &["--lease", "6s"], "x", script));
    outcome.expect(76, "the command was ended");
    assert_eq!(outcome.stdout, "ready\ntidied\n");
}

#[test]
fn on_lost_ignore_leaves_the_command_alone() {
    let options = ["--lease", "1s", "--on-lost", "ignore"];
    let outcome = finish(run_script(&alone(), &options, "x", "sleep 1.5; echo finished"));
    outcome.expect(76, "lost while the command ran");
    assert_eq!(outcome.stdout, "finished\n");
}

/// A fixed lease that is long enough makes no difference.
#[test]
fn a_command_within_its_lease() {
    finish(run_script(&alone(), &["--lease", "30s"], "x", "exit 3")).expect(3, "");
}
