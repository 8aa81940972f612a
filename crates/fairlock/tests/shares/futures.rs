//! Downgrades, turns and closures.

use crate::support::{run_paused, soon};
use fairlock::test_util::Sandbox;
use fairlock::{ErrorKind, GuardState, Release, Share};
use std::time::Duration;

#[test]
fn a_downgrade_lets_the_next_readers_in() {
    run_paused(async {
        let one = Sandbox::new();
        let (lock, other) = (one.client().rw_lock("c"), one.client().rw_lock("c"));
        let writing = lock.write().await.unwrap();
        let token = writing.token();
        let reader = tokio::spawn({
            let other = other.clone();
            async move { other.read().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let writer = tokio::spawn(async move { other.write().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let reading = writing.downgrade().await.unwrap();
        assert_eq!((reading.token(), reading.state()), (token, GuardState::Held));
        let beside = soon("the reader", reader).await.unwrap();
        assert_eq!(beside.token(), token, "they read at the same time");
        let seen = lock.inspect().await.unwrap();
        assert!(seen.holders.iter().all(|it| it.share == Share::Read), "{seen:?}");
        assert!(lock.try_read().await.unwrap().is_none(), "a writer waits");
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        drop(beside);
        assert!(soon("the writer", writer).await.unwrap().token() > token);
    });
}

#[test]
fn a_writer_with_other_guards_goes_on_writing() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let lock = client.rw_lock("c");
        let writing = lock.write().await.unwrap();
        let again = writing.reenter().await.unwrap();
        let error = writing.downgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert_eq!(again.state(), GuardState::Held);
        assert!(lock.try_read().await.unwrap().is_none());
        assert_eq!(again.release().await.unwrap(), Release::Released);
        let lost = lock.write().await.unwrap();
        lock.force_unlock().await.unwrap();
        lost.lost().await;
        assert_eq!(lost.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

/// Guards that only read are not in the way.
#[test]
fn a_writer_whose_other_guards_read_is_downgraded() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let (own, other) = (client.rw_lock("c").owned_by(&client.owner()), client.rw_lock("c"));
        let (writing, inner) = (own.write().await.unwrap(), own.read().await.unwrap());
        let reading = writing.downgrade().await.unwrap();
        drop(soon("to read", other.read()).await.unwrap());
        assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
        assert_eq!(reading.release().await.unwrap(), Release::Released);
    });
}

/// After a downgrade the owner reads: to write now would be to wait for itself.
#[test]
fn an_owner_that_downgraded_reads() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let lock = client.rw_lock("c").owned_by(&client.owner());
        let reading = lock.write().await.unwrap().downgrade().await.unwrap();
        assert_eq!(lock.write().await.unwrap_err().kind(), ErrorKind::Misuse);
        let again = lock.read().await.unwrap();
        assert_eq!(again.hold_count(), 2);
        drop((reading, again));
        drop(lock.write().await.unwrap());
    });
}

#[test]
fn turns_and_closures() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let lock = client.rw_lock("c");
        let writing = lock.write().await.unwrap();
        let mut turns = [lock.enqueue_read().await.unwrap(), lock.enqueue_read().await.unwrap()];
        let mut last = lock.enqueue_write().await.unwrap();
        assert_eq!(last.position().await.unwrap(), 2);
        drop(writing);
        let [one, two] = &mut turns;
        let guards = (one.wait().await.unwrap(), two.wait().await.unwrap());
        assert_eq!(last.position().await.unwrap(), 0);
        drop(guards);
        drop(last.wait().await.unwrap());
        let read = lock.with_read(async |held| held.token()).await.unwrap();
        let write = lock.with_write(async |held| held.token()).await.unwrap();
        assert!(read.value < write.value);
        assert_eq!(write.release, Release::Released);
    });
}

/// A guard is renewed for as long as it lives, whatever its share.
#[test]
fn shares_are_renewed() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let (client, other) = (sandbox.client(), sandbox.client());
        let reading = client.rw_lock("c").read().await.unwrap();
        let permit = client.semaphore("p", 1).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!((reading.state(), permit.state()), (GuardState::Held, GuardState::Held));
        assert!(other.rw_lock("c").try_write().await.unwrap().is_none());
        assert!(other.semaphore("p", 1).try_acquire().await.unwrap().is_none());
    });
}
