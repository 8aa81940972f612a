//! A dead Java head of a free lock: no Java waiter gets it before the head's score has passed, and
//! until then all of them poll in a tight loop. Ours wait eight seconds without polling.

use std::time::{Duration, Instant};

use fairlock::Turn;
use fairlock_interop::java::{Java, JavaClient, JavaOwner};

use super::{
    CALM, HEARTBEAT, Moved, PAST_A_DEAD_HEAD, assert_blocked, at_full_speed, both, score_ahead,
    scripts_per_second,
};
use crate::deaths::doomed;
use crate::fixture::{Fixture, measured, ms, soon};

/// Java sleeps for the TTL that it saw; with this one it soon starts to poll.
const WATCHDOG: Duration = Duration::from_secs(3);

/// A Java thread holds the lock, and another waits for it, in a JVM that is about to be killed.
struct Scene {
    java: JavaClient,
    holder: JavaOwner,
    dies: String,
}

impl Scene {
    async fn new(fixture: &Fixture, doomed: &Java, watchdog: Duration) -> Self {
        let java = fixture.java_with_watchdog(watchdog).await;
        let holder = java.owner("holder").await;
        holder.fair("a").lock().value().await;
        let dies =
            doomed.client(fixture.server.addr(), Default::default()).await.owner("dies").await;
        let _dies = dies.fair("a").lock();
        fixture.queued("a", &[&dies.id]).await;
        Self { java, holder, dies: dies.id }
    }
}

#[test]
fn a_dead_head_blocks_java_for_minutes_and_ours_for_seconds() {
    both(|fixture, alone| async move {
        let doomed = doomed(&fixture);
        let (with_ours, mixed) = (fixture.beside(), fixture);
        let scenes = tokio::join!(
            Scene::new(&alone, &doomed, WATCHDOG),
            Scene::new(&with_ours, &doomed, WATCHDOG),
            Scene::new(&mixed, &doomed, WATCHDOG + ms(1500)),
        );
        doomed.kill9();
        tokio::join!(
            redisson_alone(&alone, &scenes.0),
            ours_alone(&with_ours, &scenes.1),
            ours_end_the_polling(&mixed, &scenes.2),
        );
    });
}

async fn redisson_alone(fixture: &Moved, scene: &Scene) {
    let (one, two) = (scene.java.owner("1").await, scene.java.owner("2").await);
    let mut first = one.fair("a").lock();
    fixture.queued("a", &[&scene.dies, &one.id]).await;
    let second = two.fair("a").lock();
    fixture.queued("a", &[&scene.dies, &one.id, &two.id]).await;
    scene.holder.fair("a").unlock().value().await;
    let ahead_ms = score_ahead(fixture, "a", &scene.dies);
    let version = fixture.version();
    let blocked =
        format!("Redisson {version} alone, behind a dead head: {ahead_ms} ms by its score");
    if !version.looks_again() {
        tokio::time::sleep(PAST_A_DEAD_HEAD + ms(1000)).await;
        assert_blocked(fixture, "a", &mut first);
        assert!(ahead_ms > 290_000, "{ahead_ms}");
        measured(&blocked);
        fixture.skipped("its waiters sleep for minutes, whatever the clocks say, and do not poll");
        return;
    }
    let freed = Instant::now();
    let per_second = at_full_speed(fixture).await;
    measured(&format!(
        "Redisson {version} alone, behind a dead head: 2 waiters, {per_second} scripts/s"
    ));
    fixture.pass(2 * PAST_A_DEAD_HEAD).await;
    assert_blocked(fixture, "a", &mut first);
    // Until one second before the end, by the head's score, and then beyond it.
    let left_ms = u64::try_from(score_ahead(fixture, "a", &scene.dies)).unwrap();
    fixture.pass(ms(left_ms - 1000)).await;
    assert_blocked(fixture, "a", &mut first);
    fixture.pass(ms(1000)).await;
    first.value().await;
    let blocked_for = freed.elapsed() + fixture.by.get();
    measured(&format!("{blocked}, {blocked_for:?} in truth"));
    assert!(blocked_for > Duration::from_secs(295), "{blocked_for:?}");
    one.fair("a").unlock().value().await;
    second.value().await;
}

async fn ours_alone(fixture: &Fixture, scene: &Scene) {
    let clients = [fixture.rust().await, fixture.rust().await, fixture.rust().await];
    let mut turns: Vec<Turn> = Vec::new();
    for client in &clients {
        turns.push(soon(client.fair_lock("a").enqueue()).await.unwrap());
    }
    scene.holder.fair("a").unlock().value().await;
    let (freed, before) = (Instant::now(), fixture.server.script_calls());
    for (n, turn) in turns.iter_mut().enumerate() {
        let began = Instant::now();
        let guard = soon(turn.wait()).await.unwrap();
        if n == 0 {
            let calls = fixture.server.script_calls() - before;
            let took = freed.elapsed();
            measured(&format!("3 of ours behind a dead Java head: {took:?}, {calls} scripts"));
            assert!(took < PAST_A_DEAD_HEAD, "{took:?}");
            // With Java present, each sends a heartbeat every half a second, and some extra ones.
            let allowed = 3.0 * (took.as_secs_f64() * 2.2 + 8.0);
            assert!((calls as f64) < allowed, "{calls} scripts, {allowed} allowed");
        } else {
            // The head is known to be dead by now.
            assert!(began.elapsed() < HEARTBEAT, "{:?}", began.elapsed());
        }
        let _ = guard.release().await.unwrap();
    }
}

/// A live Java thread between the dead head and ours polls until ours gets the lock.
async fn ours_end_the_polling(fixture: &Fixture, scene: &Scene) {
    let polls = scene.java.owner("polls").await;
    let _waits = polls.fair("a").lock();
    fixture.queued("a", &[&scene.dies, &polls.id]).await;
    let rust = fixture.rust().await;
    let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    scene.holder.fair("a").unlock().value().await;
    let freed = Instant::now();
    let looks_again = fixture.version().looks_again();
    let before = if looks_again { at_full_speed(fixture).await } else { 0 };
    let guard = soon(turn.wait()).await.unwrap();
    let took = freed.elapsed();
    assert!(took < PAST_A_DEAD_HEAD, "{took:?}");
    let after = scripts_per_second(fixture).await;
    assert!(after < CALM, "{after} scripts a second");
    let then = format!("ours took the lock after {took:?}, {after} scripts/s from then on");
    match before {
        0 => measured(&format!("Java behind a dead head: {then}")),
        _ => measured(&format!("Java polled behind a dead head at {before} scripts/s; {then}")),
    }
    let _ = guard.release().await.unwrap();
}
