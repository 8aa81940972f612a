//! What clients leave behind in the folder and in the file.

use super::{Fixture, LONG, SELDOM, enter, run, take, take_over};
use crate::faults::worker::Worker;
use crate::support::{SOON, runtime, until, wait_behind};
use fairlock_testkit::clock::ClockHandle;

#[test]
fn a_client_that_ends_leaves_nothing() {
    run(async |fixture| {
        let client = fixture.client().await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert_eq!((fixture.files(".alive").len(), fixture.files(".bell").len()), (1, 1));
        let _ = guard.release().await.unwrap();
        client.shutdown().await;
        assert_eq!(fixture.files(""), [""; 0]);
    });
}

/// Killed clients leave files behind; the next client that connects removes them. The proof of
/// death is kept.
#[test]
fn what_the_killed_leave_is_removed() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let mut workers: Vec<_> = (0..3).map(|_| fixture.worker()).collect();
        take(&mut workers[0], &lock).await;
        enter(&mut workers[1], &lock, 1).await;
        for worker in &mut workers {
            worker.kill9();
        }
        let later = fixture.client().await;
        until("the files of the dead are removed", async || {
            fixture.files(".alive").len() == 2 && fixture.files(".bell").len() == 2
        })
        .await;
        assert_eq!(fixture.files(".dead").len(), 3);
        assert_eq!(fixture.files(".new"), [""; 0]);
        assert!(!later.fair_lock("job").is_locked().await.unwrap());
    });
}

/// After a client had left one hold to the store, its death could not be proven any more: whoever
/// waited for another of its locks waited for the whole lease, and its waiters kept their places for
/// ten minutes. Only what it has left lasts.
#[test]
fn a_client_that_left_a_hold_to_the_store_can_be_found_dead() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        for kind in ["lock", "plain", "simple"] {
            let mut worker = [fixture.worker()];
            worker[0].order(&format!("{kind} 0 {kind}"));
            worker[0].expect("granted 0", SOON);
            worker[0].order("detach 0");
            worker[0].expect("detached 0", SOON);
            worker[0].order("lock 1 job");
            worker[0].expect("granted 1", SOON);
            let next = wait_behind(&lock, 1).await;
            take_over("killed after it had left another hold", &mut worker, next).await;
        }
        let kept =
            [client.fair_lock("lock"), client.plain_lock("plain"), client.simple_lock("simple")];
        for lock in kept {
            assert!(lock.try_lock().await.unwrap().is_none(), "{lock:?} was left");
        }
        // The next client removes the rest: no bell, and nobody is announced.
        let later = fixture.client().await;
        until("the files of the dead are removed", async || {
            fixture.files(".alive").len() == 2 && fixture.files(".bell").len() == 2
        })
        .await;
        assert_eq!((fixture.files(".left").len(), fixture.files(".kept").len()), (3, 3));
        assert!(later.fair_lock("lock").is_locked().await.unwrap());
    });
}

/// A process that leaves holds to the store again and again keeps files for those that last.
#[test]
fn holds_that_were_left_and_are_over_leave_nothing() {
    const SHORT: std::time::Duration = std::time::Duration::from_millis(100);
    run(async |fixture| {
        let client = fixture.client().await;
        let leave = async |job: String| {
            let lock = client.fair_lock(job);
            lock.lock().await.unwrap().detach_for(SHORT).await.unwrap();
            until("it ends", async || !lock.is_locked().await.unwrap()).await;
        };
        for number in 0..10 {
            leave(format!("job {number}")).await;
        }
        // One that finds the store's file in use leaves the check to the next.
        until("all but the last are removed", async || {
            leave("one more".to_owned()).await;
            fixture.files(".kept").len() <= 2
        })
        .await;
        client.shutdown().await;
        assert_eq!(fixture.files(""), [""; 0]);
    });
}

/// The proof of a death was removed a day later by the wall clock, so a step of the clock was
/// enough. After that, nobody could know that a hold with a lease of days was over: the lock was
/// blocked until the end of the lease. Now the client that removes the proof first frees what the
/// dead one held.
#[test]
fn a_long_hold_of_the_dead_ends_before_the_proof_is_gone() {
    const HELD: [&str; 3] = ["fair", "plain", "simple"];
    let fixture = Fixture::new();
    let Some(clock) = ClockHandle::new(fixture.dir.path()) else { return };
    runtime().block_on(async {
        let mut holder = fixture.worker();
        for (at, kind) in HELD.iter().enumerate() {
            let order = if *kind == "fair" { "lock" } else { kind };
            holder.order(&format!("{order} {at} {kind}"));
            holder.expect(&format!("granted {at}"), SOON);
        }
        holder.kill9();
        // This client records the death.
        fixture.client().await.shutdown().await;
        assert_eq!((fixture.files(".alive").len(), fixture.files(".dead").len()), (0, 1));
        clock.set_offset(25 * 3_600 * 1_000_000);
        let mut later = Worker::with(&fixture.url(), SELDOM, LONG, clock.environment());
        later.order("lock 0 another");
        later.expect("granted 0", SOON);
        until("the proof is removed", async || fixture.files(".dead").is_empty()).await;
        let client = fixture.client().await;
        let locks =
            [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")];
        for (lock, kind) in locks.into_iter().zip(HELD) {
            let guard = lock.try_lock().await.unwrap();
            let _ = guard
                .unwrap_or_else(|| panic!("{kind} is held by the dead"))
                .release()
                .await
                .unwrap();
        }
    });
}
