//! Read-write locks that Redisson's clients hold.

use super::fixture::tuned;
use crate::faults::fixture::{Fixture, HB, SLACK, eventually, measured, steady, within};
use fairlock::{GuardState, Release};
use std::time::{Duration, Instant};

/// J8: Redisson tells of the end of a hold on one channel, `1` after a writer and `0` after the last
/// reader. Ours listen there while Java is in their way, and no longer. Their next look would be a
/// quarter of a minute away.
#[test]
fn j8_a_message_of_redissons_wakes_readers_and_writers() {
    steady(|| async {
        const MINUTE: Duration = Duration::from_secs(60);
        let Some(fixture) = Fixture::redis70() else { return };
        let client =
            tuned(&fixture, |config| config.heartbeat(MINUTE).watchdog_lease(5 * MINUTE)).await;
        let name = "stock";
        let channel = "redisson_rwlock:{stock}";
        let java = "0b8f6a3e-9d1c-4f57-8a2b-6c3d4e5f6071:31";
        let lock = client.rw_lock(name);
        for (mode, message) in [("write", "1"), ("read", "0")] {
            let held = if mode == "write" { format!("{java}:write") } else { java.to_owned() };
            fixture.call(&["HSET", name, "mode", mode, &held, "1"]);
            fixture.call(&["PEXPIRE", name, "300000"]);
            let timeout = format!("{{{name}}}:{java}:rwlock_timeout:1");
            fixture.call(&["SET", &timeout, "1", "PX", "300000"]);
            // The writer first: a reader would join Java's.
            let mut writing = lock.enqueue_write().await.unwrap();
            let mut reading = lock.enqueue_read().await.unwrap();
            eventually("ours listen", SLACK, || fixture.listeners(channel) == 1);
            // By now the look after the subscription is over.
            client.ping().await.unwrap();
            assert_eq!(fixture.call(&["DEL", name, &timeout]).int(), 2);
            let began = Instant::now();
            assert_eq!(fixture.call(&["PUBLISH", channel, message]).int(), 1);
            let writer = within("the writer's turn", 5 * SLACK, writing.wait()).await.unwrap();
            measured("woken by Java", began.elapsed());
            assert_eq!(writer.release().await.unwrap(), Release::Released);
            let reader = within("the reader's turn", 5 * SLACK, reading.wait()).await.unwrap();
            assert_eq!(reader.state(), GuardState::Held);
            assert_eq!(reader.release().await.unwrap(), Release::Released);
            eventually("nobody listens any more", SLACK, || fixture.listeners(channel) == 0);
        }
    });
}

/// The right to that channel is optional. Without it ours look four times in a heartbeat's time.
#[test]
fn j8_without_the_right_to_listen_ours_look() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        fixture.call(&["ACL", "SETUSER", "default", "resetchannels", "&fairlock_inbox:*"]);
        let client = fixture.client().await;
        let java = "0b8f6a3e-9d1c-4f57-8a2b-6c3d4e5f6071:31:write";
        fixture.call(&["HSET", "stock", "mode", "write", java, "1"]);
        fixture.call(&["PEXPIRE", "stock", "300000"]);
        let mut reading = client.rw_lock("stock").enqueue_read().await.unwrap();
        let brief = tokio::time::timeout(4 * HB, reading.wait()).await;
        assert!(brief.is_err(), "Java writes: {brief:?}");
        fixture.call(&["DEL", "stock"]);
        let reader = within("the reader's turn", SLACK, reading.wait()).await.unwrap();
        assert_eq!(reader.release().await.unwrap(), Release::Released);
    });
}
