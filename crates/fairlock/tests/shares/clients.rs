//! Several clients, as in several processes, and what happens when one is cut off.

use crate::support::{run_paused, soon};
use fairlock::test_util::Sandbox;
use fairlock::{GuardState, LostReason};
use std::time::Duration;
use tokio::time::Instant;

/// B8: one reader of ten is dead. The others are renewed, and it ends alone.
#[test]
fn b8_a_dead_reader_keeps_a_writer_waiting_for_its_lease() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (dead, live, waits) = (sandbox.client(), sandbox.client(), sandbox.client());
        let gone = dead.rw_lock("c").read().await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..9 {
            readers.push(live.rw_lock("c").read().await.unwrap());
        }
        sandbox.cut_off(&dead);
        let began = Instant::now();
        let writer = waits.rw_lock("c");
        let writer = tokio::spawn(async move { writer.write().await.unwrap() });
        gone.lost().await;
        assert!(readers.iter().all(|reader| reader.state() == GuardState::Held));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!writer.is_finished());
        drop(readers);
        drop(soon("the writer", writer).await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    });
}

/// B9: no call comes when the last lease ends, and the next is served all the same.
#[test]
fn b9_permits_of_a_dead_client_return_at_the_end_of_their_leases() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (dead, waits) = (sandbox.client(), sandbox.client());
        let permits = dead.semaphore("p", 3).acquire_many(3).await.unwrap();
        sandbox.cut_off(&dead);
        let began = Instant::now();
        let one = waits.semaphore("p", 3).acquire().await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
        assert_eq!(permits.state(), GuardState::Lost);
        assert_eq!(permits.lost_reason(), Some(LostReason::Unreachable));
        drop(one);
    });
}

/// A waiter that is cut off through its grant is told of it by its next heartbeat, not by the one after its lease.
#[test]
fn a_grant_that_was_not_heard_is_found() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (holds, waits) = (sandbox.client(), sandbox.client());
        let writing = holds.rw_lock("c").write().await.unwrap();
        let lock = waits.rw_lock("c");
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.read().await.unwrap() })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        sandbox.cut_off(&waits);
        drop(writing);
        tokio::time::sleep(Duration::from_millis(100)).await;
        sandbox.restore(&waits);
        let began = Instant::now();
        for reader in readers {
            drop(soon("a reader", reader).await.unwrap());
        }
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    });
}

/// A refusal that a test asks for concerns shares too, and `lose` takes them all.
#[test]
fn the_sandbox_knows_shares() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let (lock, pool) = (client.rw_lock("c"), client.semaphore("p", 2));
        sandbox.refuse_next(&client, fairlock::ErrorKind::Unavailable);
        assert!(lock.read().await.is_err());
        let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        assert!(sandbox.lose("c"));
        assert_eq!((one.state(), two.state()), (GuardState::Lost, GuardState::Lost));
        drop(lock.write().await.unwrap());
        let permit = pool.acquire().await.unwrap();
        assert!(sandbox.suspect("p"));
        assert_eq!(permit.state(), GuardState::Suspect);
    });
}
