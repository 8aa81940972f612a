//! A former version's program (`scripts/former`) and this one in the same queue, as during an
//! upgrade of a fleet: order, exclusion and rising tokens hold, whichever is killed. The matrix is
//! in docs/protocol.md, "Versions side by side".

use std::env;
use std::fs;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{PROGRAM, Running, finish, hold_until, run_script_by};
use crate::many::{CONTENDERS, contenders, host, increment_by};

/// The former version's program; without one the running test is skipped, with a notice.
fn former() -> Option<String> {
    let program = env::var("FAIRLOCK_TEST_FORMER").ok().filter(|path| !path.is_empty());
    if program.is_none() {
        fairlock_testkit::skip("a former version's program (run scripts/former)");
    }
    program
}

/// The first of two versions holds, or is killed in the queue, where the other is killed as holder,
/// and the other way round.
fn contenders_both_ways(url: &str, former: &str) {
    for programs in [[PROGRAM, former], [former, PROGRAM]] {
        let outcome = contenders(url, programs);
        outcome.expect(0, "");
        assert_eq!(outcome.stdout, CONTENDERS, "odd and even contenders: {programs:?}");
    }
}

#[test]
fn versions_queue_together_on_a_server() {
    let (Some(former), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    contenders_both_ways(&server.url(), &former);
    increment_by(&[PROGRAM, &former], &server.url(), 8, 10);
}

#[test]
fn versions_queue_together_on_this_host() {
    let Some(former) = former() else { return };
    // The file is created by whichever version comes first.
    for first in [PROGRAM, &former] {
        let dir = TempDir::new();
        let url = host(&dir);
        finish(run_script_by(first, &url, &[], "x", "true")).expect(0, "");
        contenders_both_ways(&url, &former);
        increment_by(&[PROGRAM, &former], &url, 8, 10);
    }
}

/// Each kind, and each version as the holder.
#[test]
fn versions_exclude_each_other() {
    let (Some(former), Some(server)) = (former(), Server::start(Generation::Redis70)) else {
        return;
    };
    let dir = TempDir::new();
    for url in [server.url(), host(&dir)] {
        for kind in ["fair", "plain", "simple"] {
            for (holds, other) in [(PROGRAM, former.as_str()), (former.as_str(), PROGRAM)] {
                let file = dir.path().join("go");
                let options = ["--kind", kind, "--wait", "30s"];
                let script = hold_until(&file);
                let mut holder =
                    Running::start(run_script_by(holds, &url, &options, kind, &script));
                assert_eq!(holder.line(), "holding");
                let at_once = ["--kind", kind, "--wait", "0", "--quiet"];
                finish(run_script_by(other, &url, &at_once, kind, "true")).expect(75, "");
                let waiter = Running::start(run_script_by(other, &url, &options, kind, "exit 6"));
                fs::write(&file, "").expect("the folder is there");
                holder.wait().expect(0, "");
                assert_eq!(waiter.wait().code(), 6, "{url} {kind} {holds}");
                fs::remove_file(&file).expect("it is there");
            }
        }
    }
}
