//! Requests that arrive twice, or long after their sender has given up.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, client, config, eventually, key, measured, ms, steady, within,
};
use crate::support::tag;
use fairlock::{Client, Config, ConnectionState, ErrorKind, GuardState, Release, Replicas};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::{Replicated, await_acknowledged};
use std::convert::identity;
use std::time::Instant;

/// a05 (a): a request is stuck on a connection that is given up. The caller leaves without the
/// lock; then the request arrives. No ghost takes the free lock.
#[test]
fn a05_a_late_acquire_takes_nothing() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        let _ = fixture.take(&client, "job").await.release().await;
        proxy.hold_requests(true);
        let lock = client.fair_lock("job");
        let attempt = tokio::spawn(async move { lock.lock().await });
        proxy.wait_until(|counts| counts.requests_held == 1);
        // Unanswered: the request is given up, and taken back as soon as there is a connection.
        attempt.abort();
        assert!(attempt.await.unwrap_err().is_cancelled());
        proxy.cut_clients();
        let buried = || fixture.call(&["KEYS", "fairlock_buried*"]).array().len();
        let took = eventually("the request is buried", 2 * SLACK, || buried() == 1);
        measured("a05 reconnect to the burial", took);
        let before = fixture.script_calls();
        proxy.hold_requests(false);
        eventually("the late request arrives", SLACK, || fixture.script_calls() > before);
        assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
        let _ = fixture.take(&client, "job").await.release().await;
    });
}

/// a05: as above, with the lock held: no ghost enters the queue.
#[test]
fn a05_a_late_acquire_queues_nobody() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (stuck, other) = (client(&proxy.url()).await, fixture.client().await);
        let held = fixture.take(&other, "job").await;
        proxy.hold_requests(true);
        let lock = stuck.fair_lock("job");
        let attempt = tokio::spawn(async move { lock.lock().await.map(drop) });
        proxy.wait_until(|counts| counts.requests_held == 1);
        // The caller's future is dropped.
        attempt.abort();
        proxy.cut_clients();
        let buried = || fixture.call(&["KEYS", "fairlock_buried*"]).array().len();
        eventually("the request is buried", 2 * SLACK, || buried() == 1);
        let before = fixture.script_calls();
        proxy.hold_requests(false);
        eventually("the late request arrives", SLACK, || fixture.script_calls() > before);
        assert_eq!(fixture.queue("job"), [""; 0]);
        assert_eq!(held.release().await, Release::Released);
        assert_eq!(fixture.holder("job"), None);
    });
}

/// a05: the late request arrives before anything can take it back: the lock is freed as soon as
/// possible.
#[test]
fn a05_a_late_acquire_is_freed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let config = config(&proxy.url()).watchdog_lease(10 * LEASE);
        let client = Client::with_config(config).await.unwrap();
        let _ = fixture.take(&client, "job").await.release().await;
        proxy.black_hole_to_client(true);
        let attempt = client.fair_lock("job").try_lock_for(ms(150)).await;
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Unknown);
        assert!(fixture.holder("job").is_some(), "it was carried out");
        let healed = Instant::now();
        proxy.black_hole_to_client(false);
        eventually("the lock is free", SLACK, || fixture.holder("job").is_none());
        measured("a05 healed to free", healed.elapsed());
    });
}

/// a05 (c): a stuck heartbeat arrives after its waiter has left. It does not bring the waiter back.
#[test]
fn a05_a_late_heartbeat_heals_nobody() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (stuck, other) = (client(&proxy.url()).await, fixture.client().await);
        let held = fixture.take(&other, "job").await;
        let lock = stuck.fair_lock("job");
        let attempt = tokio::spawn(async move { lock.lock().await.map(drop) });
        fixture.joined("job", &[]);
        proxy.hold_requests(true);
        proxy.wait_until(|counts| counts.requests_held >= 1);
        attempt.abort();
        proxy.cut_clients();
        eventually("it has left", 2 * SLACK, || fixture.queue("job").is_empty());
        let before = fixture.script_calls();
        proxy.hold_requests(false);
        eventually("the late heartbeat arrives", SLACK, || fixture.script_calls() > before);
        assert_eq!(fixture.queue("job"), [""; 0]);
        let _ = held.release().await;
        assert_eq!(fixture.holder("job"), None);
    });
}

/// Renewal, release and acquisition of earlier holds, and the acquisition of the current one,
/// arrive a second time: the current hold is unaffected.
#[test]
fn f57_old_requests_arrive_once_more() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        // The server knows all scripts by now, so each request is one call.
        let warm = fixture.take(&client, "job").await;
        tokio::time::sleep(LEASE / 2).await;
        let _ = warm.release().await;
        let _ = fixture.hold(client.fair_lock("job").lease(10 * LEASE)).await.release().await;
        fixture.record_without_lease(&client);

        let scripts = proxy.counts().scripts;
        let first = fixture.take(&client, "job").await;
        proxy.wait_until(|counts| counts.scripts == scripts + 2);
        // The renewal has been answered before the release is sent.
        let _ = first.release().await;
        let lock = client.fair_lock("job").lease(10 * LEASE);
        let second = fixture.hold(lock).await;
        let (holder, ttl) = (fixture.holder("job"), fixture.ttl("job"));
        assert!(ttl > 9 * LEASE);

        let replies = proxy.replay(3);
        assert_eq!(proxy.counts().scripts, scripts + 4, "renewal, release, acquisition");
        let tags: Vec<_> = replies.iter().map(tag).collect();
        assert_eq!(tags, ["nothold", "nothold", "granted"]);
        assert_eq!(fixture.holder("job"), holder);
        assert_eq!(fixture.call(&["HVALS", "job"]).array()[0].text(), "1");
        assert!(fixture.ttl("job") <= ttl && fixture.ttl("job") > 9 * LEASE);
        assert_eq!(second.guard.state(), GuardState::Held);
        assert_eq!(second.release().await, Release::Released);
        fixture.history.assert_sound();
    });
}

/// a05 (d): an old re-entry arrives after the inner guard has been released: the count stays.
#[test]
fn a05_an_old_reentry_arrives_once_more() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        let lock = client.fair_lock("job").lease(10 * LEASE);
        let held = fixture.hold(lock).await;
        for _ in 0..2 {
            let inner = held.guard.reenter().await.unwrap();
            assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
        }
        // In the second round the server knew both scripts: re-entry, partial release.
        let replies = proxy.replay(2);
        let tags: Vec<_> = replies.iter().map(tag).collect();
        assert_eq!(tags, ["stale", "held"]);
        assert_eq!(fixture.call(&["HVALS", "job"]).array()[0].text(), "1");
        assert_eq!(held.release().await, Release::Released);
        assert_eq!(fixture.holder("job"), None);
    });
}

/// No network delivers an answered acquisition again, but someone may: then a ghost stands in the
/// queue, in the name of a live client. It costs as much as an unclaimed grant.
#[test]
fn f57_a_replayed_acquire_costs_a_deadline() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (replayed, other) = (client(&proxy.url()).await, fixture.client().await);
        for _ in 0..2 {
            let _ = fixture.take(&replayed, "job").await.release().await;
        }
        let held = fixture.take(&other, "job").await;
        // The earlier acquisition and release.
        proxy.replay(2);
        assert_eq!(fixture.queue("job").len(), 1, "a ghost");
        let next = fixture.enter(&other, "job").await;
        let released = Instant::now();
        let _ = held.release().await;
        let held = next.granted(D + 2 * HB + SLACK).await;
        measured("f57 release to grant, past a ghost", held.at - released);
        let _ = held.release().await;
        assert_eq!(fixture.call(&["EXISTS", &key("redisson_lock_queue", "job")]).int(), 0);
    });
}

/// The store is out of reach for the store timeout: the error's kind tells whether the request may
/// have had an effect, and any effect is taken back.
#[test]
fn f53_the_store_is_not_reached_in_time() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let config = config(&proxy.url()).store_timeout(ms(700)).watchdog_lease(10 * LEASE);
        let client = Client::with_config(config).await.unwrap();
        let _ = fixture.take(&client, "job").await.release().await;
        proxy.black_hole_to_client(true);
        let began = Instant::now();
        let error = client.fair_lock("job").lock().await.unwrap_err();
        measured("f53 store timeout of 700 ms", began.elapsed());
        assert!(began.elapsed() < ms(700) + ms(500) + SLACK);
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(fixture.holder("job").is_some(), "it was carried out");
        proxy.black_hole_to_client(false);
        eventually("the lock is free", LEASE + SLACK, || fixture.holder("job").is_none());
    });
}

/// F56: replies come after their calls have stopped waiting for them, on a connection that stays
/// open. In the end each call gets its own answer, and none gets that of another.
#[test]
fn f56_a_late_reply_answers_its_own_call() {
    const LOCKS: u64 = 20;
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let holder = fixture.seldom().await;
        let mut owners = Vec::new();
        for name in 0..LOCKS {
            let guard = holder.plain_lock(format!("job {name}")).lock().await.unwrap();
            owners.push(guard);
        }
        // No unanswered ping may end the connection.
        let config = config(&proxy.url()).ping_interval(LEASE * 60).ping_timeout(LEASE * 60);
        let asker = Client::with_config(config.response_timeout(ms(50))).await.unwrap();
        let before = proxy.counts();
        proxy.delay_to_client(ms(300));
        let mut answers = Vec::new();
        for name in 0..LOCKS {
            let lock = asker.plain_lock(format!("job {name}"));
            answers.push(tokio::spawn(async move { lock.holder().await }));
        }
        // All requests are sent a second time while the first replies are still in flight.
        proxy.wait_until(|counts| counts.scripts >= before.scripts + 2 * LOCKS);
        proxy.delay_to_client(ms(0));
        for (answer, guard) in answers.into_iter().zip(&owners) {
            let holder = within("the answer", 15 * SLACK, answer).await.unwrap().unwrap();
            assert_eq!(&holder.unwrap().owner, guard.owner());
        }
        let counts = proxy.counts();
        assert!(counts.replies_delayed >= LOCKS, "{counts:?}");
        assert_eq!(counts.connections, before.connections, "the connection went on");
        for guard in owners {
            let _ = guard.release().await.unwrap();
        }
    });
}

/// A client whose address leads to another server while the replies of the old one are held, as
/// after a failover behind one address. `over` delivers them once it is connected to the new one.
struct Switch {
    set: Replicated,
    proxy: Proxy,
    client: Client,
}

impl Switch {
    async fn new(tune: impl Fn(Config) -> Config) -> Option<Self> {
        let set = Replicated::start(Generation::Redis70, 2)?;
        let proxy = Proxy::start(set.primary().addr());
        // The reply is waited for as long as it takes, and the request arrives before a ping is late.
        let config = config(&proxy.url()).response_timeout(60 * SLACK).watchdog_lease(60 * LEASE);
        let config = config.ping_timeout(SLACK);
        let client = Client::with_config(tune(config)).await.unwrap();
        // The server knows the scripts by now, so that each request is one call.
        let _ = client.fair_lock("warm").lock().await.unwrap().release().await.unwrap();
        Some(Self { set, proxy, client })
    }

    /// Whether the old and the new primary know the lock.
    fn is_held(&self) -> [bool; 2] {
        [self.set.primary(), self.set.replica(0)]
            .map(|server| server.client().call(&["EXISTS", "job"]).int() == 1)
    }

    /// From now on the new primary lacks what the old one does.
    fn part(&self) {
        await_acknowledged(&mut self.set.raw(), 2);
        self.set.promote(0);
    }

    fn hold_replies(&self) {
        self.proxy.refuse(true);
        self.proxy.hold_replies(true);
    }

    async fn over(&self) {
        let mut connection = self.client.connection();
        self.proxy.move_to(self.set.replica(0).addr());
        within("the client follows", 10 * SLACK, async {
            connection.wait_for(|state| *state == ConnectionState::Reconnecting).await.unwrap();
            self.proxy.refuse(false);
            connection.wait_for(|state| *state == ConnectionState::Connected).await.unwrap();
        })
        .await;
        self.proxy.hold_replies(false);
    }
}

/// The grant of the old primary came after the switch, and its guard was valid to the end of its
/// lease, while the new primary gave the lock to the next one.
#[test]
fn a_late_grant_of_an_old_primary_is_not_believed() {
    steady(|| async {
        let Some(switch) = Switch::new(identity).await else { return };
        switch.part();
        switch.hold_replies();
        let lock = switch.client.fair_lock("job").lease(60 * LEASE);
        let attempt = tokio::spawn(async move { lock.lock().await });
        let granted = || switch.is_held() == [true, false];
        eventually("the old primary has granted it", 10 * SLACK, granted);
        switch.over().await;
        let guard = within("the lock", 10 * SLACK, attempt).await.unwrap().unwrap();
        assert_eq!(switch.is_held(), [true, true]);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(switch.is_held(), [true, false]);
    });
}

/// The same for a release: it was reported, and the lock stayed held on the new primary.
#[test]
fn a_late_release_of_an_old_primary_is_not_believed() {
    steady(|| async {
        let Some(switch) = Switch::new(identity).await else { return };
        let guard = switch.client.fair_lock("job").lease(60 * LEASE).lock().await.unwrap();
        switch.part();
        switch.hold_replies();
        let release = tokio::spawn(async move { guard.release().await });
        let released = || switch.is_held() == [false, true];
        eventually("the old primary has released it", 10 * SLACK, released);
        switch.over().await;
        let release = within("the release", 10 * SLACK, release).await.unwrap().unwrap();
        assert_eq!(release, Release::Released);
        assert_eq!(switch.is_held(), [false, false]);
    });
}

/// The same for the confirmation of replicas: it comes on a connection of its own, which stayed at the
/// old primary. The guard was valid, and the new primary lacked the lock.
#[test]
fn a_late_confirmation_of_an_old_primary_is_not_believed() {
    steady(|| async {
        let replicas = |config: Config| {
            config
                .replicas(Replicas::AtLeast(1))
                .replicas_timeout(60 * SLACK)
                .store_timeout(5 * SLACK)
        };
        let Some(switch) = Switch::new(replicas).await else { return };
        switch.part();
        // It acknowledges late.
        switch.set.replica(1).stop();
        let lock = switch.client.fair_lock("job").lease(60 * LEASE);
        let attempt = tokio::spawn(async move { lock.lock().await });
        eventually("the old primary waits for its replica", 10 * SLACK, || {
            let clients = switch.set.raw().call(&["CLIENT", "LIST"]);
            clients.text().lines().any(|line| line.contains("cmd=wait"))
        });
        switch.hold_replies();
        switch.set.replica(1).cont();
        switch.over().await;
        let outcome = within("an outcome", 20 * SLACK, attempt).await.unwrap();
        // The new primary has no replica that could confirm it.
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotReplicated);
    });
}
