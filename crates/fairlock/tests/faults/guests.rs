//! Redisson's waiters for a read-write lock, who stand in no line: the lock is left to them for a moment, and goes on.

use super::fixture::{Fixture, SLACK, eventually, measured, ms, steady, within};
use fairlock::Release;
use fairlock_testkit::server::Generation;
use std::time::{Duration, Instant};

/// Redisson's channel of the lock.
const CHANNEL: &str = "redisson_rwlock:{c}";

/// Somebody listens to Redisson's channel, so the lock is left free for a moment. The client of the next one looks as soon as
/// that is over, by a message; its heartbeat is far away.
#[test]
fn b23_the_lock_that_was_left_to_java_is_handed_on_at_once_when_nobody_came() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (writes, next) = (fixture.client().await, fixture.seldom().await);
            let mut java = fixture.server.client();
            java.subscribe(CHANNEL);
            for _ in 0..3 {
                let written = writes.rw_lock("c").write().await.unwrap();
                let mut turn = next.rw_lock("c").enqueue_write().await.unwrap();
                // The second after that of the token.
                tokio::time::sleep(ms(1_000)).await;
                let released = Instant::now();
                assert_eq!(written.release().await.unwrap(), Release::Released);
                let guard = within("the next turn", SLACK, turn.wait()).await.unwrap();
                let took = released.elapsed();
                measured(&format!("b23 {}: the next one", generation.name()), took);
                assert!(took >= ms(29), "{took:?}: Java has its time");
                let _ = guard.release().await.unwrap();
            }
        }
    });
}

/// Ours listen to Redisson's channel while it holds, and would look like its waiters for ever: each second the lock would be
/// left free for nobody.
#[test]
fn b24_ours_listen_no_more_when_java_is_gone() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (reads, waits) = (fixture.client().await, fixture.client().await);
        let reading = reads.rw_lock("c").read().await.unwrap();
        let java = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";
        fixture.call(&["HSET", "c", java, "1"]);
        let mut turn = waits.rw_lock("c").enqueue_write().await.unwrap();
        eventually("it listens", 5 * SLACK, || fixture.listeners(CHANNEL) == 1);
        fixture.call(&["HDEL", "c", java]);
        let gone = Instant::now();
        within("it listens no more", Duration::from_secs(14), async {
            while fixture.listeners(CHANNEL) > 0 {
                tokio::time::sleep(ms(50)).await;
            }
        })
        .await;
        assert!(
            gone.elapsed() > Duration::from_secs(8),
            "Java may come back: {:?}",
            gone.elapsed()
        );
        fixture.call(&["HSET", "c", java, "1"]);
        eventually("it listens again", 5 * SLACK, || fixture.listeners(CHANNEL) == 1);
        fixture.call(&["HDEL", "c", java]);
        let _ = reading.release().await.unwrap();
        drop(within("its turn", 5 * SLACK, turn.wait()).await.unwrap());
    });
}
