//! Re-entry, hold counts and force unlock.

use fairlock::{GuardState, Release};
use fairlock_interop::java::Kind;

use crate::fixture::{run, soon};

#[test]
fn each_counts_its_own_holds_and_reads_the_others() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            let theirs = java.lock(kind, "a");

            let first = soon(ours.lock()).await.unwrap();
            let (second, third) = (first.reenter().await.unwrap(), first.reenter().await.unwrap());
            assert_eq!(fixture.hold("a"), Some((first.owner().to_string(), 3)));
            assert!(!theirs.try_lock().is_true().await);
            assert_eq!(second.release().await.unwrap(), Release::StillHeld(2));
            assert_eq!(third.release().await.unwrap(), Release::StillHeld(1));
            assert_eq!(fixture.hold("a"), Some((first.owner().to_string(), 1)));
            assert!(!theirs.try_lock().is_true().await);
            assert_eq!(first.release().await.unwrap(), Release::Released);

            for count in 1..=3 {
                theirs.lock().value().await;
                assert_eq!(theirs.hold_count().number().await, count);
                let holder = ours.holder().await.unwrap().unwrap();
                assert_eq!(
                    (holder.owner.to_string(), i64::from(holder.count)),
                    (java.id.clone(), count)
                );
            }
            for left in (0..3).rev() {
                assert!(ours.try_lock().await.unwrap().is_none());
                theirs.unlock().value().await;
                assert_eq!(theirs.hold_count().number().await, left);
            }
            assert!(!ours.is_locked().await.unwrap());
        }
        fixture.nothing_left().await;
    });
}

/// A Java holder that re-enters while both sides wait keeps them waiting until its last unlock, and
/// so does one of ours.
#[test]
fn only_the_last_release_hands_over() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (holder, waiter) = (java.owner("h").await, java.owner("w").await);
        let theirs = holder.fair("a");
        theirs.lock().value().await;
        theirs.lock().value().await;
        let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        let mut call = waiter.fair("a").lock();
        fixture.queued("a", &[turn.owner().to_string(), waiter.id.clone()]).await;
        theirs.unlock().value().await;
        assert_eq!(fixture.hold("a"), Some((holder.id.clone(), 1)));
        assert!(turn.wait_for(std::time::Duration::from_millis(50)).await.unwrap().is_none());
        theirs.unlock().value().await;

        let guard = soon(turn.wait()).await.unwrap();
        let again = guard.reenter().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::StillHeld(1));
        assert!(!call.is_over());
        assert_eq!(again.release().await.unwrap(), Release::Released);
        call.value().await;
        assert_eq!(fixture.hold("a"), Some((waiter.id.clone(), 1)));
        waiter.fair("a").unlock().value().await;
        fixture.nothing_left().await;
    });
}

#[test]
fn java_takes_the_lock_away_from_rust() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            let guard = soon(ours.lock()).await.unwrap();
            let waiting = tokio::spawn({
                let ours = ours.clone();
                async move { ours.lock().await.unwrap() }
            });
            if kind == Kind::Fair {
                crate::fixture::until("ours waits", || fixture.queue("a").len() == 1).await;
            }
            assert!(java.lock(kind, "a").force_unlock().is_true().await);
            // The next of ours gets it, either by message or by asking.
            let next = soon(waiting).await.unwrap();
            assert!(next.token() > guard.token());
            // A release reports the loss.
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
            assert_eq!(fixture.holder("a"), Some(next.owner().to_string()));
            assert_eq!(next.state(), GuardState::Held);
            assert_eq!(next.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

#[test]
fn rust_takes_the_lock_away_from_java() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (holder, waiter) = (java.owner("h").await, java.owner("w").await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            holder.lock(kind, "a").lock().value().await;
            let call = waiter.lock(kind, "a").lock();
            crate::fixture::until("Java listens", || {
                let channels = fixture.call(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"]);
                !channels.array().is_empty()
            })
            .await;
            assert!(ours.force_unlock().await.unwrap());
            call.value().await;
            assert_eq!(fixture.hold("a"), Some((waiter.id.clone(), 1)));
            let exception = holder.lock(kind, "a").unlock().exception().await;
            assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            waiter.lock(kind, "a").unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}
