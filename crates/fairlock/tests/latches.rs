//! Latches: what they cost on a server, and what becomes of them when replies, messages or data are lost.
//! What every store must do is in the contract.

use std::time::{Duration, Instant};

use crate::cancel::poll_n;
use crate::support::{At, Store, run, soon, until};
use fairlock::{Client, Config, ErrorKind, Opened, Replicas};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::Generation;

const REDIS: At = At::Server(Generation::Redis70);
const CHANNEL: &str = "redisson_countdownlatch__channel__{import}";

/// Resolves when somebody waits for the latch.
async fn is_waited_for(store: &Store, listeners: i64) {
    let mut raw = store.raw().unwrap();
    until("a subscription", async || raw.listeners(CHANNEL) == listeners).await;
}

/// B40: a count-down is carried out, its reply is lost, and it is sent again: it counts once. The same
/// for setting, and for deleting.
#[test]
fn b40_a_request_whose_reply_is_lost_counts_once() {
    run(REDIS, async |store| {
        for cut in [true, false] {
            let proxy = Proxy::start(store.server().unwrap().addr());
            proxy.cut_after_reply_lost(cut);
            let config = Config::from_url(&proxy.url()).unwrap();
            let config = config.response_timeout(Duration::from_millis(300));
            let client = Client::with_config(config).await.unwrap();
            let latch = client.latch("import");
            // The server knows the scripts afterwards, so that the next reply is the request's.
            latch.try_set(1).await.unwrap();
            latch.count_down().await.unwrap();
            latch.delete().await.unwrap();
            proxy.drop_replies(1);
            assert!(latch.try_set(5).await.unwrap());
            proxy.drop_replies(1);
            assert_eq!(latch.count_down().await.unwrap(), 4);
            assert_eq!(proxy.counts().replies_dropped, 2);
            assert_eq!(store.client().await.latch("import").count().await.unwrap(), 4);
            proxy.drop_replies(1);
            assert!(latch.delete().await.unwrap());
            assert_eq!(proxy.counts().replies_dropped, 3);
        }
    });
}

/// B40: the only copies of requests lie on the network until after their caller was told that they had
/// failed. Others have used the latch up and set it anew meanwhile: it was set again, or counted down, by
/// nobody. And a copy of a request that was carried out arrives when the marker of that is gone.
#[test]
fn a_request_that_arrives_after_it_was_given_up_does_nothing() {
    run(REDIS, async |store| {
        const GIVES_UP: Duration = Duration::from_secs(2);
        let other = store.client().await.latch("import");
        // The server knows the scripts afterwards, so that a copy carries out its request.
        assert!(other.try_set(2).await.unwrap());
        other.count_down().await.unwrap();
        for delayed in ["set", "count down", "delete"] {
            other.delete().await.unwrap();
            let proxy = Proxy::start(store.server().unwrap().addr());
            let config = Config::from_url(&proxy.url()).unwrap();
            let config = config.response_timeout(Duration::from_millis(200));
            let client = Client::with_config(config.store_timeout(GIVES_UP)).await.unwrap();
            let latch = client.latch("import");
            assert_eq!(latch.count().await.unwrap(), 0);
            proxy.hold_requests(true);
            let call = tokio::spawn(async move {
                match delayed {
                    "set" => latch.try_set(2).await.map(drop),
                    "delete" => latch.delete().await.map(drop),
                    _ => latch.count_down().await.map(drop),
                }
            });
            // The copy is under way: no other one will be.
            proxy.wait_until(|counts| counts.requests_held > 0);
            proxy.refuse(true);
            let failed = call.await.unwrap().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Unknown, "{delayed}: {failed}");
            let expected = if delayed == "set" { 0 } else { 5 };
            if expected > 0 {
                assert!(other.try_set(expected).await.unwrap());
            }
            let calls = store.server().unwrap().script_calls();
            proxy.hold_requests(false);
            let server = store.server().unwrap();
            until("the copy arrives", async || server.script_calls() > calls).await;
            assert_eq!(other.count().await.unwrap(), expected, "{delayed}");
        }
        // As the last copy of a count-down whose reply was lost, after a stall of the server.
        let proxy = Proxy::start(store.server().unwrap().addr());
        let config = Config::from_url(&proxy.url()).unwrap().store_timeout(GIVES_UP);
        let latch = Client::with_config(config).await.unwrap().latch("import");
        assert_eq!(latch.count_down().await.unwrap(), 4);
        assert_eq!(proxy.replay(1)[0].text().split(' ').nth(2), Some("latch"), "it is marked");
        let mut raw = store.raw().unwrap();
        for key in raw.call(&["KEYS", "fairlock_counted:*"]).array() {
            raw.call(&["DEL", key.text()]);
        }
        tokio::time::sleep(GIVES_UP).await;
        let late = proxy.replay(1);
        assert!(late[0].text().ends_with(" late"), "{late:?}");
        assert_eq!(other.count().await.unwrap(), 4);
    });
}

/// With replicas to wait for, a count-down that never reached the server was `NotReplicated`, which says
/// that it has counted: a caller that believed it did not repeat it, and the latch never opened.
#[test]
fn what_was_never_carried_out_does_not_lack_replicas() {
    run(REDIS, async |store| {
        let other = store.client().await.latch("import");
        other.try_set(3).await.unwrap();
        let proxy = Proxy::start(store.server().unwrap().addr());
        let config = Config::from_url(&proxy.url()).unwrap().replicas(Replicas::AnyConnected);
        let config = config.replicas_timeout(Duration::from_millis(100));
        let config = config.response_timeout(Duration::from_millis(200));
        let config = config.store_timeout(Duration::from_millis(800));
        let latch = Client::with_config(config).await.unwrap().latch("import");
        assert_eq!(latch.count_down().await.unwrap(), 2);
        proxy.hold_requests(true);
        proxy.refuse(true);
        let failed = latch.count_down().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
        assert_eq!(other.count().await.unwrap(), 2);
    });
}

/// B41: the message is lost. The waiters look with their heartbeat.
#[test]
fn b41_a_lost_message_costs_a_heartbeat() {
    run(REDIS, async |store| {
        const BEAT: Duration = Duration::from_millis(500);
        let proxy = Proxy::start(store.server().unwrap().addr());
        let config = Config::from_url(&proxy.url()).unwrap();
        let deaf = Client::with_config(config.heartbeat(BEAT)).await.unwrap();
        let other = store.client().await.latch("import");
        other.try_set(1).await.unwrap();
        let latch = deaf.latch("import");
        // The server knows the script afterwards, so that each look is one call.
        latch.count().await.unwrap();
        let server = store.server().unwrap();
        let before = server.script_calls();
        let waiter = tokio::spawn(async move { latch.wait().await });
        is_waited_for(&store, 1).await;
        // It has looked before and after it subscribed; the next look comes with a heartbeat.
        until("the second look", async || server.script_calls() >= before + 2).await;
        proxy.swallow_pushes(true);
        let began = Instant::now();
        other.count_down().await.unwrap();
        let opened = soon("the end of the wait", waiter).await.unwrap().unwrap();
        assert_eq!(opened, Opened::CountedDown, "the note says so");
        assert!(began.elapsed() < 8 * BEAT, "{:?}", began.elapsed());
    });
}

/// Redisson leaves no note: its message is what says that the latch was counted down.
#[test]
fn redissons_message_says_that_it_was_counted_down() {
    run(REDIS, async |store| {
        let latch = store.client().await.latch("import");
        let mut raw = store.raw().unwrap();
        for (messages, expected) in
            [(&["0"][..], Opened::CountedDown), (&["1"], Opened::Gone), (&[], Opened::Gone)]
        {
            raw.call(&["SET", "import", "1"]);
            let own = latch.clone();
            let waiter = tokio::spawn(async move { own.wait().await });
            is_waited_for(&store, 1).await;
            raw.call(&["DEL", "import"]);
            for message in messages {
                raw.call(&["PUBLISH", CHANNEL, *message]);
            }
            let opened = soon("the end of the wait", waiter).await.unwrap().unwrap();
            assert_eq!(opened, expected, "{messages:?}");
            is_waited_for(&store, 0).await;
        }
        // What is no message of Redisson's is counted and ignored.
        raw.call(&["SET", "import", "1"]);
        let (client, before) = (store.client().await, 0);
        let latch = client.latch("import");
        let waiter = tokio::spawn(async move { latch.wait().await });
        is_waited_for(&store, 1).await;
        raw.call(&["PUBLISH", CHANNEL, "open"]);
        until("it is counted", async || client.dropped_messages() > before).await;
        assert!(!waiter.is_finished());
        raw.call(&["DEL", "import"]);
        assert_eq!(soon("the end", waiter).await.unwrap().unwrap(), Opened::Gone);
    });
}

/// D60: Java counts the latch down and sets it anew before a client looks.
#[test]
fn a_latch_that_java_sets_anew_at_once_has_opened() {
    run(REDIS, async |store| {
        let latch = store.client().await.latch("import");
        let mut raw = store.raw().unwrap();
        raw.call(&["SET", "import", "1"]);
        let waiter = tokio::spawn(async move { latch.wait().await });
        is_waited_for(&store, 1).await;
        // About time: a message that comes sooner may be about the latch before this one.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for call in [
            &["MULTI"][..],
            &["DEL", "import"],
            &["PUBLISH", CHANNEL, "0"],
            &["SET", "import", "1"],
            &["PUBLISH", CHANNEL, "1"],
            &["EXEC"],
        ] {
            raw.call(call);
        }
        let opened = soon("the end of the wait", waiter).await.unwrap().unwrap();
        assert_eq!(opened, Opened::CountedDown);
    });
}

/// The note is lost after the last heartbeat of a timed wait, which took the closed latch for gone.
#[test]
fn a_timed_wait_restores_a_note_that_is_lost_at_its_end() {
    run(REDIS, async |store| {
        let latch = store.client().await.latch("import");
        let mut raw = store.raw().unwrap();
        raw.call(&["SET", "import", "1"]);
        let own = latch.clone();
        let waiter = tokio::spawn(async move { own.wait_for(Duration::from_millis(900)).await });
        is_waited_for(&store, 1).await;
        // About time: the two looks at its beginning are over, and the heartbeat comes later.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(raw.call(&["DEL", "fairlock_latch:{import}"]).int(), 1);
        assert_eq!(soon("the end of the wait", waiter).await.unwrap().unwrap(), None);
    });
}

/// B42: the data is lost. The wait ends, and not as if the latch had been counted down.
#[test]
fn b42_lost_data_is_not_taken_for_the_end() {
    run(REDIS, async |store| {
        let client = store.client().await;
        let latch = client.latch("import");
        latch.try_set(2).await.unwrap();
        let own = latch.clone();
        let waiter = tokio::spawn(async move { own.wait().await });
        is_waited_for(&store, 1).await;
        store.raw().unwrap().call(&["FLUSHALL"]);
        let opened = soon("the end of the wait", waiter).await.unwrap().unwrap();
        assert_eq!(opened, Opened::Gone);
        assert_eq!(latch.wait().await.unwrap(), Opened::Gone);
    });
}

/// A client looks once a heartbeat for all that wait for a latch there, and listens once.
#[test]
fn a_thousand_that_wait_cost_one_call_a_heartbeat() {
    run(REDIS, async |store| {
        const BEAT: Duration = Duration::from_millis(500);
        const WAITERS: usize = 1_000;
        let client = store.client_with(|config| config.heartbeat(BEAT)).await;
        let latch = client.latch("import");
        latch.try_set(1).await.unwrap();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let latch = latch.clone();
                tokio::spawn(async move { latch.wait().await })
            })
            .collect();
        is_waited_for(&store, 1).await;
        tokio::time::sleep(2 * BEAT).await;
        let server = store.server().unwrap();
        let (calls, began) = (server.script_calls(), Instant::now());
        tokio::time::sleep(6 * BEAT).await;
        let calls = server.script_calls() - calls;
        let beats = began.elapsed().as_millis() / BEAT.as_millis() + 1;
        assert!(calls >= 1 && u128::from(calls) <= beats, "{calls} calls in {beats} heartbeats");
        latch.count_down().await.unwrap();
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().unwrap(), Opened::CountedDown);
        }
        is_waited_for(&store, 0).await;
    });
}

/// Nothing of ours stays for ever, and the count is Redisson's: a number without a TTL.
#[test]
fn only_the_count_has_no_end() {
    run(REDIS, async |store| {
        let latch = store.client().await.latch("import");
        let mut raw = store.raw().unwrap();
        latch.try_set(3).await.unwrap();
        latch.count_down().await.unwrap();
        assert_eq!(raw.call(&["GET", "import"]).text(), "2");
        let keys = raw.call(&["KEYS", "*"]);
        for key in keys.array() {
            let left = raw.call(&["PTTL", key.text()]).int();
            assert_eq!(left < 0, key.text() == "import", "{key:?}: {left}");
        }
        latch.delete().await.unwrap();
        assert_eq!(raw.call(&["EXISTS", "import"]).int(), 0);
    });
}

/// What stands under the name and is no latch is refused, with the reason, and stays as it is. Another
/// program's lock whose value was a number was counted down, and removed.
#[test]
fn what_is_no_latch_is_refused() {
    run(REDIS, async |store| {
        let latch = store.client().await.latch("import");
        let mut raw = store.raw().unwrap();
        for write in [
            &["SET", "import", "some text"][..],
            &["SET", "import", "-1"],
            &["SET", "import", ""],
            &["SET", "import", "1", "PX", "60000"],
            &["RPUSH", "import", "x"],
            &["HSET", "import", "f", "1"],
        ] {
            raw.call(&["DEL", "import"]);
            raw.call(write);
            let before = raw.call(&["DUMP", "import"]);
            for refused in [
                latch.try_set(1).await.map(drop),
                latch.count_down().await.map(drop),
                latch.count().await.map(drop),
                latch.wait().await.map(drop),
                latch.delete().await.map(drop),
            ] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::WrongType, "{write:?}: {refused}");
                assert!(refused.to_string().contains("`import`"), "{refused}");
            }
            assert_eq!(raw.call(&["DUMP", "import"]), before);
        }
    });
}

/// A server that restarts without its data ends the wait, one that keeps it does not.
#[test]
fn a_wait_goes_on_after_a_reconnect() {
    run(REDIS, async |store| {
        let proxy = Proxy::start(store.server().unwrap().addr());
        let client = Client::connect(&proxy.url()).await.unwrap();
        let latch = client.latch("import");
        latch.try_set(1).await.unwrap();
        let own = latch.clone();
        let waiter = tokio::spawn(async move { own.wait().await });
        is_waited_for(&store, 1).await;
        proxy.cut_all();
        is_waited_for(&store, 1).await;
        assert!(!waiter.is_finished());
        latch.count_down().await.unwrap();
        let opened = soon("the end of the wait", waiter).await.unwrap().unwrap();
        assert_eq!(opened, Opened::CountedDown);
    });
}

/// Where a call takes real time: one that is dropped after any number of polls is carried out once, if it has begun,
/// or not at all.
fn calls_are_carried_out_once_or_not_at_all(at: At) {
    run(at, async |store| {
        let (client, other) = (store.client().await, store.client().await);
        for pause in [0, 40, 150].map(Duration::from_micros) {
            for polls in 0..12 {
                let latch = client.latch(format!("import {pause:?} {polls}"));
                let seen = other.latch(format!("import {pause:?} {polls}"));
                let begun = polls > 0;
                poll_n(latch.try_set(3), Some(polls), pause).await;
                until("it is set", async || {
                    seen.count().await.unwrap() == if begun { 3 } else { 0 }
                })
                .await;
                assert_eq!(seen.try_set(3).await.unwrap(), !begun);
                poll_n(latch.count_down(), Some(polls), pause).await;
                until("it is counted down", async || {
                    seen.count().await.unwrap() == if begun { 2 } else { 3 }
                })
                .await;
                // Each begins a subscription, or finds that it has ended.
                poll_n(latch.wait(), Some(polls), pause).await;
                poll_n(latch.wait_for(Duration::from_secs(60)), Some(polls), pause).await;
                poll_n(latch.delete(), Some(polls), pause).await;
                until("it is gone", async || (seen.count().await.unwrap() == 0) == begun).await;
                assert_eq!(seen.delete().await.unwrap(), !begun);
            }
        }
        let idle = async || client.background_tasks() <= other.background_tasks();
        until("nothing of the waits is left", idle).await;
    });
}

#[test]
fn dropped_calls_are_carried_out_once_or_not_at_all_on_a_server() {
    calls_are_carried_out_once_or_not_at_all(REDIS);
}

#[cfg(feature = "sqlite")]
#[test]
fn dropped_calls_are_carried_out_once_or_not_at_all_on_the_host_store() {
    calls_are_carried_out_once_or_not_at_all(At::Host);
}

/// Redisson puts the channel of a name with braces into another slot, where a script cannot publish if messages are
/// sharded. Where they go to all nodes, and on single servers, these names are as good as others.
#[test]
fn names_with_braces_are_refused_where_messages_are_sharded() {
    for (at, is_refused) in [
        (At::Cluster(Generation::Redis70), true),
        (At::Cluster(Generation::Redis62), false),
        (REDIS, false),
    ] {
        run(at, async |store| {
            let client = store.client().await;
            for name in ["{import}", "{im}port"] {
                let latch = client.latch(name);
                if !is_refused {
                    assert!(latch.try_set(1).await.unwrap());
                    let own = latch.clone();
                    let waiter = tokio::spawn(async move { own.wait().await });
                    assert_eq!(latch.count_down().await.unwrap(), 0);
                    soon("the end of the wait", waiter).await.unwrap().unwrap();
                    continue;
                }
                for refused in [
                    latch.try_set(1).await.map(drop),
                    latch.count_down().await.map(drop),
                    latch.count().await.map(drop),
                    latch.wait().await.map(drop),
                    latch.delete().await.map(drop),
                ] {
                    let refused = refused.unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::Misuse, "{refused}");
                    assert!(refused.to_string().contains("use a name without braces"), "{refused}");
                }
            }
        });
    }
}

/// A user without the right to the latch's channel: what it asked for is done when the message is refused. Who waits learns
/// of it as if the message were lost.
#[test]
fn what_was_done_without_the_right_to_the_channel() {
    run(REDIS, async |store| {
        let mut raw = store.raw().unwrap();
        let rules = ["on", ">secret", "~*", "+@all", "&fairlock*"];
        raw.call(&[&["ACL", "SETUSER", "mute"][..], &rules].concat());
        let url = store.url().replacen("://", "://mute:secret@", 1);
        let mute = Client::connect(&url).await.unwrap().latch("import");
        assert_eq!(mute.try_set(1).await.unwrap_err().kind(), ErrorKind::Denied);
        let latch = store.client().await.latch("import");
        assert_eq!(latch.count().await.unwrap(), 1, "it is set");
        let wait = tokio::spawn(async move { latch.wait().await });
        is_waited_for(&store, 1).await;
        assert_eq!(mute.count_down().await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(soon("the end of the wait", wait).await.unwrap().unwrap(), Opened::CountedDown);
    });
}

/// In paused time: the latch is deleted just before the end of a timed wait, and the next one of its name set and counted
/// down. The last look had forgotten which latch was waited for, and found one that was counted down.
#[cfg(feature = "test-util")]
#[test]
fn a_timed_wait_does_not_take_the_next_latch_for_its_own() {
    use crate::support::run_paused;
    use fairlock::test_util::Sandbox;

    run_paused(async {
        let sandbox = Sandbox::new();
        let (client, other) = (sandbox.client(), sandbox.client().latch("import"));
        assert!(other.try_set(2).await.unwrap());
        let latch = client.latch("import");
        let wait = tokio::spawn(async move { latch.wait_for(Duration::from_millis(1_500)).await });
        tokio::time::sleep(Duration::from_millis(1_450)).await;
        assert!(other.delete().await.unwrap());
        assert!(other.try_set(1).await.unwrap());
        assert_eq!(other.count_down().await.unwrap(), 0);
        assert_eq!(wait.await.unwrap().unwrap(), Some(Opened::Gone));
        // Counted down just before the end.
        assert!(other.try_set(1).await.unwrap());
        let latch = client.latch("import");
        let wait = tokio::spawn(async move { latch.wait_for(Duration::from_millis(1_500)).await });
        tokio::time::sleep(Duration::from_millis(1_450)).await;
        assert_eq!(other.count_down().await.unwrap(), 0);
        assert_eq!(wait.await.unwrap().unwrap(), Some(Opened::CountedDown));
    });
}

/// In paused time: dropping a call after any number of polls leaves nothing of it behind.
#[cfg(feature = "test-util")]
#[test]
fn calls_can_be_dropped_at_every_poll() {
    use crate::support::{poll_once, run_paused};
    use fairlock::test_util::Sandbox;

    run_paused(async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let latch = client.latch("import");
        let idle = client.background_tasks();
        for polls in 0..8 {
            assert!(latch.try_set(2).await.unwrap());
            let mut wait = Box::pin(latch.wait());
            let mut timed = Box::pin(latch.wait_for(Duration::from_secs(5)));
            let mut count = Box::pin(latch.count_down());
            for _ in 0..polls {
                assert!(poll_once(&mut wait).await.is_none());
                assert!(poll_once(&mut timed).await.is_none());
                if poll_once(&mut count).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop((wait, timed, count));
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(client.background_tasks(), idle, "after {polls} polls");
            // A count-down that has begun is carried out, once.
            let counted = if polls == 0 { 2 } else { 1 };
            assert_eq!(latch.count().await.unwrap(), counted, "after {polls} polls");
            assert!(latch.delete().await.unwrap());
        }
        // A cut-off client learns of the end when it is back.
        latch.try_set(1).await.unwrap();
        let other = sandbox.client().latch("import");
        let waiter = tokio::spawn(async move { latch.wait().await });
        tokio::time::sleep(Duration::from_secs(10)).await;
        sandbox.cut_off(&client);
        other.count_down().await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!waiter.is_finished());
        sandbox.restore(&client);
        assert_eq!(waiter.await.unwrap().unwrap(), Opened::CountedDown);
    });
}
