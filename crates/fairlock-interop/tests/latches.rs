//! Latches beside Redisson's `RCountDownLatch`: either side sets, counts down, deletes and waits.

use std::time::{Duration, Instant};

use fairlock::{Client, Config, Latch, Opened};
use fairlock_interop::java::{Call, Kind};
use fairlock_interop::version::Version;
use fairlock_testkit::proxy::Proxy;
use tokio::task::JoinHandle;

use crate::fixture::{measured, ms, run, settled, soon, until};

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

/// Waits until Java has looked once more after it subscribed, without a script that could be counted.
async fn asleep(awaits: &mut Call) {
    assert!(awaits.answer_within(ms(200)).await.is_none());
}

/// B40: a count-down of ours is carried out, its reply is lost, and it is sent again. Java sees it
/// once, and its waiters are not let in too soon.
#[test]
fn b40_java_sees_a_count_down_once_whose_reply_was_lost() {
    run(|fixture| async move {
        let proxy = Proxy::start(fixture.server.addr());
        proxy.cut_after_reply_lost(true);
        let client = Client::with_config(Config::from_url(&proxy.url()).unwrap()).await.unwrap();
        let java = fixture.java().await;
        let (waits, counts) = (java.owner("w").await, java.owner("c").await);
        let (waits, counts) =
            (waits.lock(Kind::Latch, "import"), counts.lock(Kind::Latch, "import"));
        let ours = client.latch("import");
        // The server knows the scripts afterwards, so that the next reply is the request's.
        assert!(ours.try_set(1).await.unwrap());
        assert_eq!(ours.count_down().await.unwrap(), 0);
        assert!(counts.call("trySetCount", &[3]).is_true().await);
        let mut awaits = waits.call("await", &[]);
        until("it listens", || fixture.listeners(CHANNEL) == 1).await;
        proxy.drop_replies(1);
        assert_eq!(soon(ours.count_down()).await.unwrap(), 2);
        assert_eq!(proxy.counts().replies_dropped, 1);
        assert_eq!(theirs_count(&counts).await, 2);
        counts.call("countDown", &[]).value().await;
        assert!(awaits.answer_within(ms(100)).await.is_none());
        // The reply to the last one is lost, too, but not what it tells.
        proxy.drop_replies(1);
        assert_eq!(soon(ours.count_down()).await.unwrap(), 0);
        awaits.value().await;
        assert!(counts.call("trySetCount", &[1]).is_true().await, "no late copy counts it down");
        assert_eq!(theirs_count(&counts).await, 1);
        assert!(counts.call("delete", &[]).is_true().await);
    });
}

/// B41: Java's last count-down, and its message is lost. Ours look, and are told that the latch is gone;
/// Java's own waiters wait on.
#[test]
fn b41_a_lost_message_costs_ours_a_heartbeat_and_java_all() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.latch("import"), java.lock(Kind::Latch, "import"));
        assert!(theirs.call("trySetCount", &[1]).is_true().await);
        let waits = waiting(&ours);
        let mut awaits = theirs.call("await", &[]);
        until("both listen", || fixture.listeners(CHANNEL) == 2).await;
        asleep(&mut awaits).await;
        let lost = Instant::now();
        fixture.call(&["DEL", "import"]);
        assert_eq!(soon(waits).await.unwrap(), Opened::Gone);
        measured(&format!("ours after a count-down whose message was lost: {:?}", lost.elapsed()));
        assert!(lost.elapsed() < Duration::from_secs(4), "{:?}", lost.elapsed());
        assert!(awaits.answer_within(ms(1000)).await.is_none(), "Java does not look");
        fixture.call(&["PUBLISH", CHANNEL, "0"]);
        awaits.value().await;
    });
}

/// B42: the data are lost. Ours do not take that for the end; Java waits on, for a latch that is set
/// anew.
#[test]
fn b42_lost_data_do_not_open_a_latch() {
    run(|fixture| async move {
        let rust = fixture.rust().await;
        let (java, counting) = (fixture.java_owner().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.latch("import"), java.lock(Kind::Latch, "import"));
        assert!(ours.try_set(3).await.unwrap());
        let waits = waiting(&ours);
        let mut awaits = theirs.call("await", &[]);
        until("both listen", || fixture.listeners(CHANNEL) == 2).await;
        asleep(&mut awaits).await;
        fixture.call(&["FLUSHALL"]);
        assert_eq!(soon(waits).await.unwrap(), Opened::Gone);
        assert!(!awaits.is_over());
        assert!(ours.try_set(1).await.unwrap());
        let waits = waiting(&ours);
        until("both listen", || fixture.listeners(CHANNEL) == 2).await;
        counting.lock(Kind::Latch, "import").call("countDown", &[]).value().await;
        assert_eq!(soon(waits).await.unwrap(), Opened::CountedDown);
        awaits.value().await;
    });
}

/// Redisson's testMultiAwait and testCountDown: all who wait are let in, asynchronous calls of one
/// client, too, and to count an open latch down changes nothing.
#[test]
fn all_who_wait_are_let_in_and_more_count_downs_change_nothing() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let ours = rust.latch("import");
        let counts = java.owner("c").await.lock(Kind::Latch, "import");
        for by_java in [false, true] {
            assert!(counts.call("trySetCount", &[2]).is_true().await);
            let mut calls = Vec::new();
            for n in 0..5 {
                let latch = java.owner(&format!("t{n}")).await.lock(Kind::Latch, "import");
                // Before 3.24.1 only the first asynchronous call of a client is let in.
                let is_async = n % 2 == 0 && fixture.version() != Version::V3_16;
                calls.push(latch.call(if is_async { "awaitAsync" } else { "await" }, &[]));
            }
            let waits: Vec<_> = (0..5).map(|_| waiting(&ours)).collect();
            until("both listen", || fixture.listeners(CHANNEL) == 2).await;
            settled(&fixture).await;
            for _ in 0..4 {
                if by_java {
                    counts.call("countDown", &[]).value().await;
                } else {
                    ours.count_down().await.unwrap();
                }
            }
            for call in calls {
                call.value().await;
            }
            for wait in waits {
                assert_eq!(soon(wait).await.unwrap(), Opened::CountedDown);
            }
            assert_eq!(theirs_count(&counts).await, 0);
            assert_eq!(fixture.call(&["EXISTS", "import"]).int(), 0);
        }
    });
}
