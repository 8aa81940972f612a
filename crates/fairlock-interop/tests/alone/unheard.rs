//! A message is lost: Java sleeps until the TTL that it saw has ended, ours for a heartbeat at
//! most. Java behind the sleeper polls in a tight loop; ours wake it.

use std::time::{Duration, Instant};

use fairlock_interop::java::{Call, JavaOwner};
use fairlock_testkit::proxy::Proxy;

use super::{CALM, HEARTBEAT, assert_blocked, at_full_speed, listens, scripts_per_second};
use crate::fixture::{Fixture, measured, ms, run, settled, soon, until};

/// The lease that sleeping waiters see.
const LEASE: Duration = Duration::from_secs(7);

/// A Java thread that holds the lock, and a proxy that can lose messages.
///
/// All Java clients are created before the lease begins: their first connections take a busy JVM
/// seconds, and the lease that sleeping waiters see has few (D18: the later steps came after it had
/// ended, on a quiet machine).
struct Scene {
    holder: JavaOwner,
    proxy: Proxy,
    deaf: JavaOwner,
    held: Instant,
}

/// A Java thread that waits behind the proxy.
struct Deaf {
    owner: JavaOwner,
    call: Call,
}

impl Scene {
    async fn new(fixture: &Fixture) -> Self {
        let (holder, proxy) = (fixture.java_owner().await, Proxy::start(fixture.server.addr()));
        let client = fixture.java.client(proxy.addr(), Default::default()).await;
        let deaf = client.owner("deaf").await;
        let held = Instant::now();
        holder.fair("a").lock_for(LEASE.as_millis() as i64).value().await;
        Self { holder, proxy, deaf, held }
    }

    async fn deaf(&self, fixture: &Fixture) -> Deaf {
        let owner = self.deaf.clone();
        let before = self.proxy.counts().scripts;
        let call = owner.fair("a").lock();
        fixture.queued("a", &[&owner.id]).await;
        listens(fixture, "a", &owner.id).await;
        // It asks once more after it has subscribed. Later, that request would find the lock free.
        until("it asks again", || self.proxy.counts().scripts >= before + 2).await;
        settled(fixture).await;
        Deaf { owner, call }
    }

    /// Unlocks, and loses the message to the head, but no other.
    async fn unlock_unheard(&self) -> Instant {
        let before = self.proxy.counts().pushes_swallowed;
        self.proxy.swallow_pushes(true);
        self.holder.fair("a").unlock().value().await;
        let freed = Instant::now();
        self.proxy.wait_until(|counts| counts.pushes_swallowed > before);
        self.proxy.swallow_pushes(false);
        freed
    }
}

#[test]
fn a_lost_message_costs_java_its_ttl_and_ours_a_heartbeat() {
    run(|fixture| async move {
        let (alone, healed) = (fixture.beside(), fixture.beside());
        tokio::join!(
            lost_to_java_alone(&alone),
            lost_to_ours(&fixture),
            told_again_by_ours(&healed)
        );
    });
}

async fn lost_to_java_alone(fixture: &Fixture) {
    let scene = Scene::new(fixture).await;
    let deaf = scene.deaf(fixture).await;
    let freed = scene.unlock_unheard().await;
    deaf.call.value().await;
    let (took, since_held) = (freed.elapsed(), scene.held.elapsed());
    measured(&format!(
        "Redisson {} alone, a lost message, lease {LEASE:?}: {took:?} beside a free lock",
        fixture.version()
    ));
    // It waits until the end of the lease that it saw.
    assert!(since_held > LEASE - ms(100) && since_held < LEASE + ms(1500), "{since_held:?}");
}

async fn lost_to_ours(fixture: &Fixture) {
    let scene = Scene::new(fixture).await;
    let config = fairlock::Config::from_url(&scene.proxy.url()).unwrap();
    let rust = fairlock::Client::with_config(config).await.unwrap();
    let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    // It asks once more after it has subscribed, and must have done so.
    listens(fixture, "a", &turn.owner().to_string()).await;
    settled(fixture).await;
    let freed = scene.unlock_unheard().await;
    let guard = soon(turn.wait()).await.unwrap();
    let took = freed.elapsed();
    measured(&format!("ours, a lost message: {took:?}"));
    assert!(took < HEARTBEAT, "{took:?}");
    let _ = guard.release().await.unwrap();
}

/// Java misses its message, and ours behind it repeats it.
async fn told_again_by_ours(fixture: &Fixture) {
    let scene = Scene::new(fixture).await;
    let deaf = scene.deaf(fixture).await;
    let rust = fixture.rust().await;
    let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    listens(fixture, "a", &turn.owner().to_string()).await;
    settled(fixture).await;
    let freed = scene.unlock_unheard().await;
    deaf.call.value().await;
    let took = freed.elapsed();
    measured(&format!("Java, a lost message, ours behind it: {took:?}"));
    assert!(took < HEARTBEAT, "{took:?}");
    deaf.owner.fair("a").unlock().value().await;
    let _ = soon(turn.wait()).await.unwrap().release().await.unwrap();
}

#[test]
fn behind_a_head_that_sleeps_java_polls_and_ours_wake_it() {
    run(|fixture| async move {
        if !fixture.version().looks_again() {
            fixture.skipped("its waiters do not poll, they sleep for minutes");
            return;
        }
        let (alone, mixed) = (fixture.beside(), fixture.beside());
        tokio::join!(java_polls_alone(&alone), ours_wake_the_head(&fixture), ours_end_it(&mixed));
    });
}

async fn java_polls_alone(fixture: &Fixture) {
    let late = fixture.java_owner().await;
    let scene = Scene::new(fixture).await;
    let mut deaf = scene.deaf(fixture).await;
    scene.unlock_unheard().await;
    let comes = late.fair("a").lock();
    fixture.queued("a", &[&deaf.owner.id, &late.id]).await;
    let per_second = at_full_speed(fixture).await;
    measured(&format!(
        "Redisson {} alone, behind a head that sleeps: 1 waiter, {per_second} scripts/s",
        fixture.version()
    ));
    assert_blocked(fixture, "a", &mut deaf.call);
    deaf.call.value().await;
    deaf.owner.fair("a").unlock().value().await;
    comes.value().await;
}

/// Ours arrive at a free lock whose head has missed its message, and notify it in the call by which
/// they enter.
async fn ours_wake_the_head(fixture: &Fixture) {
    let clients = [fixture.rust().await, fixture.rust().await];
    let scene = Scene::new(fixture).await;
    let deaf = scene.deaf(fixture).await;
    scene.unlock_unheard().await;
    let (before, began) = (fixture.server.script_calls(), Instant::now());
    let mut first = soon(clients[0].fair_lock("a").enqueue()).await.unwrap();
    let mut second = soon(clients[1].fair_lock("a").enqueue()).await.unwrap();
    deaf.call.value().await;
    let (took, calls) = (began.elapsed(), fixture.server.script_calls() - before);
    measured(&format!(
        "2 of ours come behind a head that sleeps: awake after {took:?}, {calls} scripts"
    ));
    assert!(took < ms(1000) && calls < CALM, "{took:?}, {calls} scripts");
    deaf.owner.fair("a").unlock().value().await;
    let _ = soon(first.wait()).await.unwrap().release().await.unwrap();
    let _ = soon(second.wait()).await.unwrap().release().await.unwrap();
}

/// Java is already polling when one of ours arrives.
async fn ours_end_it(fixture: &Fixture) {
    let (polls, rust) = (fixture.java_owner().await, fixture.rust().await);
    let scene = Scene::new(fixture).await;
    let deaf = scene.deaf(fixture).await;
    scene.unlock_unheard().await;
    let waits = polls.fair("a").lock();
    fixture.queued("a", &[&deaf.owner.id, &polls.id]).await;
    let before = at_full_speed(fixture).await;
    let began = Instant::now();
    let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    deaf.call.value().await;
    let took = began.elapsed();
    // The first heartbeats of ours follow each other closely; the poller has stopped once the rate
    // is calm.
    let mut after = scripts_per_second(fixture).await;
    while after >= CALM && began.elapsed() < HEARTBEAT {
        after = scripts_per_second(fixture).await;
    }
    measured(&format!(
        "Java polled behind a head that sleeps at {before} scripts/s; ours came and woke it after \
         {took:?}, {after} scripts/s from then on"
    ));
    assert!(took < ms(1000) && after < CALM, "{took:?}, {after} scripts a second");
    until("it holds it", || fixture.holder("a").as_ref() == Some(&deaf.owner.id)).await;
    deaf.owner.fair("a").unlock().value().await;
    waits.value().await;
    polls.fair("a").unlock().value().await;
    let _ = soon(turn.wait()).await.unwrap().release().await.unwrap();
}
