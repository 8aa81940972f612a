//! What holders, waiters and newcomers are told when somebody removes a part of the store.

use super::{AT_ONCE, Fixture, JOB, enter, run, take};
use crate::faults::fixture::measured;
use crate::support::{SOON, queue_is, runtime, soon, until};
use fairlock::{Client, Config, ErrorKind, GuardState};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Long enough for a newcomer to try twice and be refused.
const LEASE: Duration = Duration::from_secs(6);

/// Removes the folder while clients beat, which make anew what they miss, also in a folder that is being removed.
fn remove_folder(folder: &Path) {
    while let Err(error) = fs::remove_dir_all(folder) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty, "{error}");
    }
}

/// D03: the log and its index were removed (they look stale), and two newcomers ran beside a holder
/// that noticed nothing. Now a waiter gets an error, the holder's guard ends with its lease at the
/// latest, and nobody is let in until then and until the holder's client has ended. After that, the
/// next client still sees what it held.
#[test]
fn d03_a_removed_log_ends_the_hold_before_another_begins() {
    run(async |fixture| {
        let config = Config::from_url(&fixture.url()).unwrap().watchdog_lease(LEASE);
        let config = config.heartbeat(Duration::from_millis(100));
        let client = Client::with_config(config.clone()).await.unwrap();
        let guard = client.fair_lock(JOB).lock().await.unwrap();
        let token = guard.token();
        let waits = Client::with_config(config).await.unwrap();
        let lock = waits.fair_lock(JOB);
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        queue_is(&client.fair_lock(JOB), 1).await;
        for ending in ["wal", "shm"] {
            fs::remove_file(fixture.dir.path().join(format!("locks-{ending}"))).unwrap();
        }
        let began = Instant::now();
        let refused = soon("the waiter is told", waiter).await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("removed or replaced"), "{refused}");
        while guard.state() != GuardState::Lost {
            let error = Client::connect(&fixture.url()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("removed or replaced"), "{error}");
            assert!(began.elapsed() < LEASE + SOON, "the holder is not told");
        }
        assert!(guard.ensure_valid().is_err());
        waits.shutdown().await;
        client.shutdown().await;
        let next = Client::connect(&fixture.url()).await.unwrap();
        let later = soon("the lock", next.fair_lock(JOB).lock()).await.unwrap();
        assert!(later.token() > token);
        let _ = later.release().await.unwrap();
    });
}

/// D03: the log stayed behind when the process ended right after its client, as `fairlock run`
/// does: it looked stale, and somebody removed it.
#[test]
fn d03_nothing_stays_behind_a_client_that_was_shut_down() {
    run(async |fixture| {
        let client = fixture.client().await;
        let _ = client.fair_lock(JOB).lock().await.unwrap().release().await.unwrap();
        client.shutdown().await;
        // At once, not a moment later: the process may be over by then.
        let left = ["wal", "shm"].map(|ending| fixture.dir.path().join(format!("locks-{ending}")));
        assert!(left.iter().all(|left| !left.exists()));
    });
}

/// The clients' folder was removed while they ran: earlier clients kept the old one open and looked
/// there for the bells of later ones, which are not in it. A live waiter was passed over, and the
/// lock was idle for seconds. Now each client uses the folder that has the name at present.
#[test]
fn a_removed_folder_of_clients_costs_nobody_its_turn() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock(JOB);
        let (mut holder, mut first) = (fixture.worker(), fixture.worker());
        take(&mut holder, &lock).await;
        enter(&mut first, &lock, 1).await;
        remove_folder(&fixture.dir.path().join("locks-clients"));
        let mut later: Vec<_> = (0..3).map(|_| fixture.worker()).collect();
        for (at, worker) in later.iter_mut().enumerate() {
            enter(worker, &lock, at + 2).await;
        }
        let began = Instant::now();
        holder.order("release 0");
        holder.expect("released 0", SOON);
        // The first waiter learns of its end.
        holder.kill9();
        let mut last = 0;
        for (at, worker) in std::iter::once(&mut first).chain(&mut later).enumerate() {
            let token = worker.expect("granted 0", AT_ONCE).token();
            assert!(token > last, "out of turn: {at}");
            last = token;
            worker.order("release 0");
            worker.expect("released 0", SOON);
        }
        measured("four turns after the folder was removed", began.elapsed());
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    });
}

/// A waiter notices at its heartbeat that its bell is gone, with or without the folder, and creates
/// another. A release then reaches it, also for locks without a queue.
#[test]
fn a_waiter_hangs_up_another_bell() {
    for folder_too in [true, false] {
        let fixture = Fixture::new();
        runtime().block_on(async {
            // Heartbeats come at five and ten times this interval here.
            let config =
                Config::from_url(&fixture.url()).unwrap().heartbeat(Duration::from_millis(100));
            let client = fixture.client().await;
            for kind in ["fair", "plain"] {
                let waits = Client::with_config(config.clone()).await.unwrap();
                let of = |client: &Client| match kind {
                    "fair" => client.fair_lock(kind),
                    _ => client.plain_lock(kind),
                };
                let guard = of(&client).lock().await.unwrap();
                let lock = of(&waits);
                let next = tokio::spawn(async move { lock.lock().await });
                if kind == "fair" {
                    queue_is(&of(&client), 1).await;
                } else {
                    until("it listens", async || fixture.files(".base").len() == 1).await;
                }
                let clients = fixture.dir.path().join("locks-clients");
                if folder_too {
                    remove_folder(&clients);
                } else {
                    for name in fixture.files(".bell") {
                        fs::remove_file(clients.join(name)).unwrap();
                    }
                }
                until("another bell", async || {
                    clients.exists() && fixture.files(".bell").len() == 1
                })
                .await;
                if folder_too && kind == "plain" {
                    until("it listens again", async || fixture.files(".base").len() == 1).await;
                }
                let _ = guard.release().await.unwrap();
                let _ = soon("the lock", next).await.unwrap().unwrap().release().await.unwrap();
                waits.shutdown().await;
                assert_eq!(fixture.files(".bell"), [""; 0]);
            }
        });
    }
}
