//! What holders, waiters and newcomers are told when somebody removes a part of the file.

use super::{Bed, JOB};
use crate::support::{SOON, queue_is, runtime, soon};
use fairlock::{Client, Config, ErrorKind, GuardState};
use std::fs;
use std::time::{Duration, Instant};

/// Long enough for a newcomer to try twice, and be refused.
const LEASE: Duration = Duration::from_secs(6);

/// The log and its index were removed (they look stale), and two newcomers ran beside a holder that noticed
/// nothing. Now a waiter is told, the holder's guard ends with its lease at the latest, and until then and until
/// the holder's client has ended nobody is let in. Then what it held is known to who comes next.
#[test]
fn d03_a_removed_log_ends_the_hold_before_another_begins() {
    let bed = Bed::new();
    runtime().block_on(async {
        let config = Config::from_url(&bed.url()).unwrap().watchdog_lease(LEASE);
        let config = config.heartbeat(Duration::from_millis(100));
        let client = Client::with_config(config.clone()).await.unwrap();
        let guard = client.fair_lock(JOB).lock().await.unwrap();
        let token = guard.token();
        let waits = Client::with_config(config).await.unwrap();
        let lock = waits.fair_lock(JOB);
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        queue_is(&client.fair_lock(JOB), 1).await;
        for ending in ["wal", "shm"] {
            fs::remove_file(bed.dir.path().join(format!("locks-{ending}"))).unwrap();
        }
        let began = Instant::now();
        let refused = soon("the waiter is told", waiter).await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("removed or replaced"), "{refused}");
        while guard.state() != GuardState::Lost {
            let error = Client::connect(&bed.url()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("removed or replaced"), "{error}");
            assert!(began.elapsed() < LEASE + SOON, "the holder is not told");
        }
        assert!(guard.ensure_valid().is_err());
        waits.shutdown().await;
        client.shutdown().await;
        let next = Client::connect(&bed.url()).await.unwrap();
        let later = soon("the lock", next.fair_lock(JOB).lock()).await.unwrap();
        assert!(later.token() > token);
        later.release().await.unwrap();
    });
}

/// The log stayed behind when the process ended right after its client, which is what `fairlock run` does: it
/// looked stale, and was removed.
#[test]
fn d03_nothing_stays_behind_a_client_that_was_shut_down() {
    let bed = Bed::new();
    runtime().block_on(async {
        let client = bed.client().await;
        client.fair_lock(JOB).lock().await.unwrap().release().await.unwrap();
        client.shutdown().await;
        // Now, not a moment later: the process may be over.
        let left = ["wal", "shm"].map(|ending| bed.dir.path().join(format!("locks-{ending}")));
        assert!(left.iter().all(|left| !left.exists()));
    });
}
