//! A member of the list without a score at the head: no Java client ever removes it. A `DEL` or an
//! eviction of the wrong key suffices to cause it.

use std::time::{Duration, Instant};

use fairlock_testkit::redisson::queue_key;

use super::{HEARTBEAT, Moved, PAST_A_DEAD_HEAD, assert_blocked, at_full_speed, both};
use crate::fixture::{Fixture, measured, soon, until};

const GHOST: &str = "5a0f6f0e-0000-4000-8000-000000000000:7";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long one of ours waits for a waiter, like Redisson's `fairLockWaitTimeout`.
const FAIR_WAIT: Duration = Duration::from_secs(5);

#[test]
fn a_head_without_a_score_blocks_java_for_ever_and_ours_for_seconds() {
    both(|fixture, alone| async move {
        let healed = fixture.beside();
        for fixture in [&fixture, &healed, &*alone] {
            fixture.call(&["RPUSH", &queue_key("a"), GHOST]);
        }
        tokio::join!(redisson_alone(&alone), ours_passes_it(&fixture), ours_heals_it(&healed));
    });
}

async fn redisson_alone(fixture: &Moved) {
    let java = fixture.java_owner().await;
    let version = fixture.version();
    if !version.looks_again() {
        let error = java.fair("a").lock().exception().await;
        assert!(error.contains("RedisException"), "{error}");
        measured(&format!("Redisson {version} alone, a head without a score: every call throws"));
        return;
    }
    let mut call = java.fair("a").lock();
    until("it waits", || fixture.queue("a") == [GHOST, &java.id]).await;
    let per_second = at_full_speed(fixture).await;
    fixture.pass(YEAR).await;
    assert_blocked(fixture, "a", &mut call);
    assert_eq!(fixture.queue("a")[0], GHOST);
    measured(&format!(
        "Redisson {version} alone, a head without a score: blocked after a year, 1 waiter, \
         {per_second} scripts/s"
    ));
    fixture.call(&["DEL", &queue_key("a")]);
    call.value().await;
}

/// With default settings it is a head that is not listening, and gets a fair wait from now on.
async fn ours_passes_it(fixture: &Fixture) {
    let rust = fixture.rust().await;
    let began = Instant::now();
    let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
    let took = began.elapsed();
    measured(&format!("ours past a head without a score: {took:?}"));
    assert!(took < PAST_A_DEAD_HEAD, "{took:?}");
    let scores = fixture.scores("a");
    assert!(scores.iter().any(|(owner, ms)| owner == GHOST && *ms < 300_000), "{scores:?}");
    let _ = guard.release().await.unwrap();
}

/// When that has passed, Java removes it itself.
async fn ours_heals_it(fixture: &Fixture) {
    let rust = fixture.rust_with(|config| config.fair_wait(FAIR_WAIT)).await;
    let java = fixture.java_owner().await;
    let began = Instant::now();
    let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    until("it has a score", || fixture.scores("a").len() == 2).await;
    let call = java.fair("a").lock();
    until("three wait", || fixture.queue("a").len() == 3).await;
    let guard = soon(turn.wait()).await.unwrap();
    let _ = guard.release().await.unwrap();
    call.value().await;
    let took = began.elapsed();
    measured(&format!(
        "Java past a head without a score, ours with a fair wait of {FAIR_WAIT:?} near: {took:?}"
    ));
    assert!(took < FAIR_WAIT + 2 * HEARTBEAT, "{took:?}");
    java.fair("a").unlock().value().await;
    assert!(fixture.queue("a").is_empty());
}
