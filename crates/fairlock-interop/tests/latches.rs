//! Latches beside Redisson's `RCountDownLatch`: either side sets, counts down, deletes and waits.

use std::time::{Duration, Instant};

use fairlock::{Latch, Opened};
use fairlock_interop::java::Kind;
use tokio::task::JoinHandle;

use crate::fixture::{measured, ms, run, soon, until};

const CHANNEL: &str = "redisson_countdownlatch__channel__{import}";

fn waiting(latch: &Latch) -> JoinHandle<Opened> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await.unwrap() })
}

/// Ours wait while Java counts down, and Java waits while ours count down. The message comes at once: our next look would
/// be a heartbeat later.
#[test]
fn either_side_counts_down_and_the_other_waits() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.latch("import"), java.lock(Kind::Latch, "import"));
        let counting = fixture.java_owner().await.lock(Kind::Latch, "import");
        for round in 0..3 {
            let is_ours = round % 2 == 0;
            let set = match is_ours {
                true => ours.try_set(2).await.unwrap(),
                false => theirs.call("trySetCount", &[2]).is_true().await,
            };
            assert!(set);
            assert!(!ours.try_set(9).await.unwrap());
            assert!(!theirs.call("trySetCount", &[9]).is_true().await);
            let waits = waiting(&ours);
            let mut awaits = theirs.call("await", &[]);
            until("both listen", || fixture.listeners(CHANNEL) == 2).await;
            ours.count_down().await.unwrap();
            assert_eq!(theirs_count(&counting).await, 1);
            assert!(!waits.is_finished() && !awaits.is_over());
            let began = Instant::now();
            if is_ours {
                assert_eq!(ours.count_down().await.unwrap(), 0);
            } else {
                counting.call("countDown", &[]).value().await;
            }
            assert_eq!(soon(waits).await.unwrap(), Opened::CountedDown);
            let took = began.elapsed();
            awaits.value().await;
            measured(&format!("ours after the last count-down: {took:?}"));
            assert!(took < Duration::from_secs(1), "{took:?}: a message, not a heartbeat");
            assert_eq!(theirs_count(&counting).await, 0);
            assert_eq!(ours.count().await.unwrap(), 0);
        }
    });
}

async fn theirs_count(latch: &fairlock_interop::java::JavaLock) -> i64 {
    latch.call("getCount", &[]).number().await
}

/// What Java deletes is gone for ours, and what ours delete is gone for Java. A latch that Java counts down beside a
/// heartbeat of ours is counted down all the same: the look may come before the message.
#[test]
fn what_is_deleted_is_gone() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.latch("import"), java.lock(Kind::Latch, "import"));
        assert!(theirs.call("trySetCount", &[5]).is_true().await);
        let waits = waiting(&ours);
        until("it listens", || fixture.listeners(CHANNEL) == 1).await;
        assert!(theirs.call("delete", &[]).is_true().await);
        assert_eq!(soon(waits).await.unwrap(), Opened::Gone);
        assert!(ours.try_set(5).await.unwrap());
        assert!(ours.delete().await.unwrap());
        assert_eq!(theirs_count(&theirs).await, 0);
        assert!(theirs.call("await", &[100]).is_true().await, "it is open");

        let hasty = fixture.rust_with(|config| config.heartbeat(ms(500))).await.latch("import");
        for _ in 0..20 {
            assert!(theirs.call("trySetCount", &[1]).is_true().await);
            let waits = waiting(&hasty);
            until("it listens", || fixture.listeners(CHANNEL) == 1).await;
            theirs.call("countDown", &[]).value().await;
            assert_eq!(soon(waits).await.unwrap(), Opened::CountedDown);
            until("nobody listens", || fixture.listeners(CHANNEL) == 0).await;
        }
    });
}
