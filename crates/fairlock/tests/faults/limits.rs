//! Limits of the process that are reached for seconds: threads and descriptors. What cannot be done is an error, and all of
//! it works again afterwards.

use super::fixture::{Fixture, HB, LEASE, SLACK, measured, ms, steady};
use super::worker::Worker;
use fairlock_testkit::history::Event;
use rustix::process::{Resource, getrlimit};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

/// Nobody else runs anything as this user, so that its threads are the worker's.
const USER: (u32, u32) = (52_041, 52_041);

/// For so long nothing may be begun: many attempts to connect fall into it. Time is what this is about.
const SECONDS: u64 = 3_000;

/// A worker whose limits count for it alone: what root starts has none.
fn limited(url: &str) -> Worker {
    if is_root() {
        Worker::of_user(url, HB, 20 * LEASE, USER)
    } else {
        Worker::with(url, HB, 20 * LEASE, [])
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Changes a limit of the worker, as its own user: in a container root may not.
fn limit(worker: &Worker, what: &str, most: &str) {
    let mut command = Command::new("prlimit");
    command.args([format!("--pid={}", worker.pid()), format!("--{what}={most}:")]);
    if is_root() {
        command.uid(USER.0).gid(USER.1);
    }
    let done = command.status().expect("prlimit, of util-linux");
    assert!(done.success(), "{what}: {done}");
}

/// The connections are cut while nothing can be had of `what`; then it can again.
fn reached_for_seconds(fixture: &Fixture, url: &str, (what, kind): (&str, Resource)) {
    let name = format!("job-{what}");
    let mut worker = limited(url);
    let line = worker.take(fixture, &name);
    limit(&worker, what, "1");
    fixture.call(&["CLIENT", "KILL", "TYPE", "normal"]);
    fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    worker.expect("state 0 Suspect", SLACK);
    let again = worker.hear("state 0 Held", ms(SECONDS));
    assert!(again.is_none(), "{what}: it has connected in spite of the limit");
    let began = Instant::now();
    // As many as this process may have, from which it has its limits.
    let before = getrlimit(kind).current;
    let before = before.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    limit(&worker, what, &before);
    // The pause between two attempts has grown to two seconds.
    worker.expect("state 0 Held", ms(3_000) + SLACK);
    measured(&format!("d41 {what}: to Held"), began.elapsed());
    // Not only what was held: a new call, too.
    worker.order(&format!("lock 1 another-{name}"));
    worker.expect("granted 1", SLACK);
    worker.order("release 0");
    assert_eq!(worker.expect("released", SLACK).words[2], "Released");
    fixture.history.record(&name, line.owner(), Event::Released);
}

/// D41: the system has no thread for some seconds, and the connections are lost meanwhile. The look-up of the server's
/// name panicked in the task that keeps the connection, and nothing ever connected again.
#[test]
fn d41_no_thread_for_seconds() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let url = format!("redis://localhost:{}/", fixture.server.port());
        reached_for_seconds(&fixture, &url, ("nproc", Resource::Nproc));
    });
}

/// The same for descriptors.
#[test]
fn d41_no_descriptor_for_seconds() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let url = format!("redis://localhost:{}/", fixture.server.port());
        reached_for_seconds(&fixture, &url, ("nofile", Resource::Nofile));
    });
}

/// The files of TLS were read in the same way, also where the server has an address and no name.
#[cfg(feature = "tls")]
#[test]
fn d41_no_thread_to_read_the_files_of_tls() {
    use fairlock_testkit::server::{Generation, Server};
    use fairlock_testkit::tls::{Ca, Files};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    steady(|| async {
        let (files, ca) = (Files::default(), Ca::new("ours"));
        let identity = files.identity("server", &ca.server(), &ca);
        let Some(fixture) = Fixture::with(Server::builder(Generation::Redis70).tls(&identity))
        else {
            return;
        };
        // The worker is another user.
        set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
        let ca = files.put("trusted.pem", ca.pem());
        set_permissions(&ca, Permissions::from_mode(0o644)).unwrap();
        let port = fixture.server.port();
        let url = format!("rediss://127.0.0.1:{port}/?ca={}", ca.display());
        reached_for_seconds(&fixture, &url, ("nproc", Resource::Nproc));
    });
}
