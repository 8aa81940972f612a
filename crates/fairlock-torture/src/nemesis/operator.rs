//! What operators do to the keys of locks.

use super::{Kind, last};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use std::time::{Duration, Instant};

/// How long to look for a lock that is held right now: each is held for milliseconds at a time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The contended locks among which it looks.
const LOCKS: [&str; 5] = ["fair-0", "fair-1", "fair-2", "kept-0", "kept-1"];

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, url: &str, raw: &mut Raw, rng: &mut Rng) -> Option<bool> {
    Some(match kind {
        Kind::LockDeleted => once(raw, rng, |raw, lock| raw.call(&["DEL", lock]).int() == 1),
        Kind::LockPersisted => once(raw, rng, |raw, lock| raw.call(&["PERSIST", lock]).int() == 1),
        Kind::LockExpired => {
            once(raw, rng, |raw, lock| raw.call(&["PEXPIRE", lock, "1"]).int() == 1)
        }
        Kind::LockOverwritten => overwrite(raw, rng),
        Kind::QueueDeleted => delete(raw, rng, "redisson_lock_queue:"),
        Kind::ScoresDeleted => delete(raw, rng, "redisson_lock_timeout:"),
        Kind::RegistryDeleted => {
            let part = rng.pick(&["fairlock_order:", "fairlock_state:", "fairlock_beats:"]);
            delete(raw, rng, part)
        }
        Kind::TokenDeleted => delete(raw, rng, "redisson_lock_token:"),
        Kind::ForceUnlocked => force(url, rng),
        _ => return None,
    })
}

fn delete(raw: &mut Raw, rng: &mut Rng, prefix: &str) -> bool {
    once(raw, rng, |raw, lock| raw.call(&["DEL", &format!("{prefix}{{{lock}}}")]).int() == 1)
}

/// Tries one lock after another until the fault takes effect.
fn once(raw: &mut Raw, rng: &mut Rng, mut act: impl FnMut(&mut Raw, &str) -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let lock = rng.pick(&LOCKS);
        if act(raw, lock) {
            return true;
        }
    }
    false
}

/// Replaces the lock with a list for a while.
fn overwrite(raw: &mut Raw, rng: &mut Rng) -> bool {
    let mut which = String::new();
    let done = once(raw, rng, |raw, lock| {
        let script = "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end \
                      redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')";
        lock.clone_into(&mut which);
        raw.call(&["EVAL", script, "1", lock]).int() == 1
    });
    if !done {
        return false;
    }
    last(rng.between(50, 400));
    raw.call(&["DEL", &which]).int() == 1
}

/// Like `fairlock unlock --force`.
fn force(url: &str, rng: &mut Rng) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let Ok(client) = fairlock::Client::connect(url).await else { return false };
        let began = Instant::now();
        let mut forced = false;
        while !forced && began.elapsed() < PATIENCE {
            let lock = client.fair_lock(rng.pick(&LOCKS));
            forced = lock.force_unlock().await.unwrap_or(false);
        }
        client.shutdown().await;
        forced
    })
}
