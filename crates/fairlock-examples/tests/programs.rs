//! Runs each program of `src/bin`, without a server and with one.

use fairlock_testkit::processes;
use fairlock_testkit::server::{Generation, Server};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The output of each program, on every store.
const TABLE: &[(&str, &str)] = &[
    ("blocking", "held 2 times by this thread\ninterrupted\n"),
    (
        "scheduler",
        "runs at http://a:8080\nthen at http://b:8080\nthen at http://a:8080\nthen nowhere\n",
    ),
    ("readme", "done\n"),
    (
        "lease",
        "renewed: Held after two leases\n\
         fixed: Lost when the lease is over\n\
         bounded: the task was dropped, the guard is Lost\n\
         left to the store: 0ns of it left when the next one came\n",
    ),
    (
        "wait",
        "try_lock: taken\n\
         try_lock_for: not in time\n\
         enqueue: 0 before us, 1 before the next\n\
         turn: it is ours\n\
         given up\n",
    ),
    ("with", "booked 42\ncancelled, the lock was lost\n"),
    ("several", "moved\none is taken: none of them\n"),
    ("once", "sent: true\nsent again: false\nsent in the next period: true\n"),
    ("owner", "reenter: held 2 times\nowner: held 2 times\nnon_reentrant: held 1 times\n"),
];

/// Programs with a separate test.
const OTHERS: &[&str] = &["service", "watch"];

/// No program takes this long.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

fn programs() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_service")).parent().unwrap().to_owned()
}

fn start(program: &str, args: &[&str]) -> Child {
    Command::new(programs().join(program))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // In its own group, so that its children are killed with it: one that hangs would keep our
        // pipes open.
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Waits for the end.
fn end(child: Child) -> (ExitStatus, String, String) {
    let output = processes::end(child, ENDS_WITHIN);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status, text(output.stdout), text(output.stderr))
}

#[track_caller]
fn prints(program: &str, args: &[&str], wanted: &str) {
    let (status, out, err) = end(start(program, args));
    assert!(status.success(), "{program} {args:?}: {status}: {out}{err}");
    assert_eq!(out, wanted, "{program} {args:?}: {err}");
    assert_eq!(err, "", "{program} {args:?}");
}

#[test]
fn every_program_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> =
        names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let mut known: Vec<_> =
        TABLE.iter().map(|(name, _)| *name).chain(OTHERS.iter().copied()).collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn programs_without_a_server() {
    for (program, wanted) in TABLE {
        prints(program, &[], wanted);
    }
}

#[test]
fn programs_on_redis() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for (program, wanted) in TABLE {
        prints(program, &[&server.url()], wanted);
    }
    let waiting = server.client().call(&["KEYS", "redisson_lock_queue:*"]);
    assert_eq!(waiting.array().len(), 0, "{waiting:?}");
}

/// Also shown in the manual.
pub(crate) const SERVICE: &str = "\
a and b, 20 times each: the counter is 40 after 40 changes
  ok: no change is lost
  ok: tokens rise from change to change
a holds the lock, has read 40, and is paused
b got the lock when a's lease was over, and wrote 41
  ok: b's change follows the last one
  ok: b's token is larger than a's
a wakes up, and its late write is refused: \"41 Lost\"
  ok: a's guard says Lost
  ok: b's change stands
a takes the lock again, and wrote 42
  ok: a goes on with a new token
  ok: all changes are there, in order
";

#[test]
fn a_service_of_two_processes() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let began = Instant::now();
    prints("service", &[&server.url()], SERVICE);
    println!("measured: the service in {:?}", began.elapsed());
}

/// A demonstration that cannot fail proves nothing.
#[test]
fn a_service_without_a_server_fails() {
    let (status, out, err) = end(start("service", &["redis://127.0.0.1:1/"]));
    assert_eq!((status.code(), out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("service: 127.0.0.1:1: the connection failed"), "{err}");
    // Each process then has its own store, so nothing excludes the other: it must report that.
    let (status, out, err) = end(start("service", &["memory:"]));
    assert_eq!(status.code(), Some(1), "{out}{err}");
    assert!(!err.is_empty());
}

/// The server restarts with its data: both the connection and the guard recover.
#[test]
fn the_watch_tells_of_a_restart() {
    let server = Server::builder(Generation::Redis70).persist(true).start();
    let Some(server) = server else { return };
    let mut child = start("watch", &[&server.url()]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    let mut until = |wanted: &[&str]| {
        while !wanted.iter().all(|line| seen.iter().any(|seen| seen == line)) {
            seen.push(lines.next().expect("more lines").unwrap());
        }
        std::mem::take(&mut seen)
    };
    assert_eq!(until(&["connection: Connected", "guard: Held"]).len(), 2);
    server.kill9();
    assert_eq!(until(&["connection: Reconnecting", "guard: Suspect"]).len(), 2);
    server.restart();
    assert_eq!(until(&["connection: Connected", "guard: Held"]).len(), 2);
    drop(child.stdin.take());
    until(&["connection: Closed"]);
    let (status, _, err) = end(child);
    assert!(status.success(), "{err}");
}
