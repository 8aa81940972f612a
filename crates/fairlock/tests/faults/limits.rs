//! Limits of the process that are reached for some seconds: threads and descriptors. What cannot be
//! done is an error, and everything works again afterwards.

use super::fixture::{Fixture, HB, LEASE, SLACK, measured, ms, steady};
use super::worker::Worker;
use fairlock_testkit::history::Event;
use rustix::process::{Resource, getrlimit};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

/// No other process runs as this user, so all its threads are the worker's.
const USER: (u32, u32) = (52_041, 52_041);

/// How long nothing can be started, in milliseconds: long enough for many attempts to connect. This
/// test is about time.
const SECONDS: u64 = 3_000;

/// A worker with limits of its own: processes of root are exempt from them.
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

/// Changes a limit of the worker, as its own user: in a container root may not do that.
fn limit(worker: &Worker, what: &str, most: &str) {
    let mut command = Command::new("prlimit");
    command.args([format!("--pid={}", worker.pid()), format!("--{what}={most}:")]);
    if is_root() {
        command.uid(USER.0).gid(USER.1);
    }
    let done = command.status().expect("prlimit, of util-linux");
    assert!(done.success(), "{what}: {done}");
}

/// Cuts the connections while the limit of `what` is reached, then lifts the limit.
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
    // The limit of this process, from which the worker inherited its own.
    let before = getrlimit(kind).current;
    let before = before.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    limit(&worker, what, &before);
    // The pause between two attempts has grown to two seconds.
    worker.expect("state 0 Held", ms(3_000) + SLACK);
    measured(&format!("d41 {what}: to Held"), began.elapsed());
    // New calls work as well, not only the hold.
    worker.order(&format!("lock 1 another-{name}"));
    worker.expect("granted 1", SLACK);
    worker.order("release 0");
    assert_eq!(worker.expect("released", SLACK).words[2], "Released");
    fixture.history.record(&name, line.owner(), Event::Released);
}

/// D41: the system has no thread to spare for some seconds, and the connections are lost meanwhile.
/// Resolving the server's name panicked in the task that keeps the connection, and the client never
/// connected again.
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

/// The TLS files were read in the same way, even if the server is given by address and not by name.
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
        // The worker runs as another user.
        set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
        let ca = files.put("trusted.pem", ca.pem());
        set_permissions(&ca, Permissions::from_mode(0o644)).unwrap();
        let port = fixture.server.port();
        let url = format!("rediss://127.0.0.1:{port}/?ca={}", ca.display());
        reached_for_seconds(&fixture, &url, ("nproc", Resource::Nproc));
    });
}
