//! A former version's program (`scripts/former`) and this one in the same queue, as during an
//! upgrade of a fleet: order, exclusion and rising tokens hold, whichever is killed. The matrix is
//! in docs/protocol.md, "Versions side by side".

use std::env;
use std::fs;
use std::thread;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};

use crate::fixture::{PROGRAM, Running, finish, guardian, hold_until, pid, run_script_by};
use crate::many::{CONTENDERS, contenders, host, increment_by};

/// The former version's program; without one the running test is skipped, with a notice.
fn former() -> Option<String> {
    let program = env::var("FAIRLOCK_TEST_FORMER").ok().filter(|path| !path.is_empty());
    if program.is_none() {
        fairlock_testkit::skip("a former version's program (run scripts/former)");
    }
    program
}

/// How contenders of each kind with a queue ask for the whole lock.
const ALONE: [&[&str]; 3] = [&[], &["--kind", "rw"], &["--permits", "1"]];

/// The first of two versions holds, or is killed in the queue, where the other is killed as holder,
/// and the other way round. Then loops of both take turns at a counter with a fair lock.
fn contenders_both_ways(url: &str, former: &str) {
    for options in ALONE {
        for programs in [[PROGRAM, former], [former, PROGRAM]] {
            let outcome = contenders(url, options, programs);
            outcome.expect(0, "");
            assert_eq!(
                outcome.stdout, CONTENDERS,
                "odd and even contenders: {programs:?} {options:?}"
            );
        }
    }
    increment_by(&[PROGRAM, former], url, 8, 10);
}

#[test]
fn versions_queue_together_on_a_server() {
    let (Some(former), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    contenders_both_ways(&server.url(), &former);
}

/// The file is created by whichever version comes first.
#[test]
fn versions_queue_together_on_this_host() {
    let Some(former) = former() else { return };
    thread::scope(|scope| {
        for first in [PROGRAM, &former] {
            let former = &former;
            scope.spawn(move || {
                let dir = TempDir::new();
                let url = host(&dir);
                finish(run_script_by(first, &url, &[], "x", "true")).expect(0, "");
                contenders_both_ways(&url, former);
            });
        }
    });
}

/// Each kind, and each version as the holder: the other one is excluded, waits, and is next.
#[test]
fn versions_exclude_each_other() {
    let (Some(former), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let dir = TempDir::new();
    let file = dir.path().join("go");
    for url in [server.url(), host(&dir)] {
        for (holds, asks) in [
            (&["--kind", "fair"][..], &["--kind", "fair"][..]),
            (&["--kind", "plain"], &["--kind", "plain"]),
            (&["--kind", "simple"], &["--kind", "simple"]),
            (&["--kind", "rw"], &["--kind", "rw"]),
            (&["--kind", "rw"], &["--shared"]),
            (&["--shared"], &["--kind", "rw"]),
            (&["--permits", "3", "--take", "2"], &["--permits", "3", "--take", "2"]),
        ] {
            for (holder, other) in [(PROGRAM, former.as_str()), (former.as_str(), PROGRAM)] {
                let name = format!("held with {}", holds.join(" "));
                let mut holder =
                    Running::start(run_script_by(holder, &url, holds, &name, &hold_until(&file)));
                assert_eq!(holder.line(), "holding");
                let at_once = [asks, &["--wait", "0", "--quiet"]].concat();
                finish(run_script_by(other, &url, &at_once, &name, "true")).expect(75, "");
                let waits = [asks, &["--wait", "30s"]].concat();
                let waiter = Running::start(run_script_by(other, &url, &waits, &name, "exit 6"));
                fs::write(&file, "").expect("the folder is there");
                holder.wait().expect(0, "");
                assert_eq!(waiter.wait().code(), 6, "{url} {holds:?} {asks:?}");
                fs::remove_file(&file).expect("it is there");
            }
        }
    }
}

/// Readers of both versions hold together. One of each is killed with all its processes, whatever version judges it: the
/// one that is left keeps every writer out, and a writer of either version is next when it has ended.
#[test]
fn versions_read_together() {
    let (Some(former), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let dir = TempDir::new();
    let file = dir.path().join("go");
    let reads = ["--shared", "--ttl", "4s"];
    for url in [server.url(), host(&dir)] {
        for [stays, writes] in [[PROGRAM, &former], [&former, PROGRAM]] {
            let reader = |program: &str| {
                let mut reader =
                    Running::start(run_script_by(program, &url, &reads, "rw", &hold_until(&file)));
                assert_eq!(reader.line(), "holding");
                reader
            };
            let stays = reader(stays);
            let dying = [reader(PROGRAM), reader(&former)];
            let writer = |wait: &str| {
                let options = ["--kind", "rw", "--quiet", "--wait", wait];
                finish(run_script_by(writes, &url, &options, "rw", "exit 6")).code()
            };
            for reader in &dying {
                kill_process(pid(guardian(reader.pid())), Signal::KILL).expect("it is there");
                reader.signal(Signal::KILL);
            }
            // Longer than the leases of the killed.
            assert_eq!(writer("6s"), 75, "{url}: one still reads");
            fs::write(&file, "").expect("the folder is there");
            stays.wait().expect(0, "");
            assert_eq!(writer("30s"), 6, "{url}");
            drop(dying);
            fs::remove_file(&file).expect("it is there");
        }
    }
}
