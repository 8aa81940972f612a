//! What clients leave in the folder and in the file.

use super::{Bed, LONG, SELDOM, enter, take};
use crate::faults::worker::Worker;
use crate::support::{SOON, runtime, until};
use fairlock_testkit::clock::ClockHandle;

#[test]
fn a_client_that_ends_leaves_nothing() {
    let bed = Bed::new();
    runtime().block_on(async {
        let client = bed.client().await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert_eq!((bed.files(".alive").len(), bed.files(".bell").len()), (1, 1));
        guard.release().await.unwrap();
        client.shutdown().await;
        assert_eq!(bed.files(""), [""; 0]);
    });
}

/// Killed clients leave their files; whoever connects removes them. The proof of their death is kept.
#[test]
fn what_the_killed_leave_is_removed() {
    let bed = Bed::new();
    runtime().block_on(async {
        let client = bed.client().await;
        let lock = client.fair_lock("job");
        let mut workers: Vec<_> = (0..3).map(|_| bed.worker()).collect();
        take(&mut workers[0], &lock).await;
        enter(&mut workers[1], &lock, 1).await;
        for worker in &mut workers {
            worker.kill9();
        }
        let later = bed.client().await;
        until("the files of the dead are removed", async || {
            bed.files(".alive").len() == 2 && bed.files(".bell").len() == 2
        })
        .await;
        assert_eq!(bed.files(".dead").len(), 3);
        assert_eq!(bed.files(".new"), [""; 0]);
        assert!(!later.fair_lock("job").is_locked().await.unwrap());
    });
}

/// The proof of a death was removed a day after it, by the wall clock, so that a stepped clock was enough. Nobody
/// could know then that a hold with a lease of days was over: the lock was blocked until the lease's end. Whoever
/// removes the proof frees what its client held first.
#[test]
fn a_long_hold_of_the_dead_ends_before_the_proof_is_gone() {
    const HELD: [&str; 3] = ["fair", "plain", "simple"];
    let bed = Bed::new();
    let Some(clock) = ClockHandle::new(bed.dir.path()) else { return };
    runtime().block_on(async {
        let mut holder = bed.worker();
        for (at, kind) in HELD.iter().enumerate() {
            let order = if *kind == "fair" { "lock" } else { kind };
            holder.order(&format!("{order} {at} {kind}"));
            holder.expect(&format!("granted {at}"), SOON);
        }
        holder.kill9();
        // Buries it.
        bed.client().await.shutdown().await;
        assert_eq!((bed.files(".alive").len(), bed.files(".dead").len()), (0, 1));
        clock.set_offset(25 * 3_600 * 1_000_000);
        let mut later = Worker::with(&bed.url(), SELDOM, LONG, clock.environment());
        later.order("lock 0 another");
        later.expect("granted 0", SOON);
        until("the proof is removed", async || bed.files(".dead").is_empty()).await;
        let client = bed.client().await;
        let locks =
            [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")];
        for (lock, kind) in locks.into_iter().zip(HELD) {
            let guard = lock.try_lock().await.unwrap();
            guard.unwrap_or_else(|| panic!("{kind} is held by the dead")).release().await.unwrap();
        }
    });
}
