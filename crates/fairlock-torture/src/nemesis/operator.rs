//! What operators do to the keys of locks.

use super::{Kind, last};
use crate::wanted::LIMIT;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use std::time::{Duration, Instant};

/// How long to look for a lock that is held right now: each is held for milliseconds at a time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The locks among which it looks.
const LOCKS: [&str; 5] = ["fair-0", "fair-1", "fair-2", "kept-0", "kept-1"];
const READ_WRITE: [&str; 2] = ["rw-0", "kept-rw"];
const SEMAPHORES: [&str; 2] = ["sem-0", "kept-sem"];
pub(crate) const ANY: &[&str] =
    &["fair-0", "fair-1", "fair-2", "kept-0", "kept-1", "rw-0", "kept-rw", "sem-0", "kept-sem"];

/// What the keys of their registries begin with.
const REGISTRIES: [(&[&str], &str); 3] =
    [(&LOCKS, "fairlock"), (&READ_WRITE, "fairlock_rw"), (&SEMAPHORES, "fairlock_sem")];

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, url: &str, raw: &mut Raw, rng: &mut Rng) -> Option<bool> {
    Some(match kind {
        Kind::LockDeleted => once(raw, rng, ANY, |raw, lock| raw.call(&["DEL", lock]).int() == 1),
        Kind::LockPersisted => {
            once(raw, rng, ANY, |raw, lock| raw.call(&["PERSIST", lock]).int() == 1)
        }
        Kind::LockExpired => {
            once(raw, rng, ANY, |raw, lock| raw.call(&["PEXPIRE", lock, "1"]).int() == 1)
        }
        Kind::LockOverwritten => overwrite(raw, rng),
        Kind::QueueDeleted => delete(raw, rng, &LOCKS, "redisson_lock_queue"),
        Kind::ScoresDeleted => delete(raw, rng, &LOCKS, "redisson_lock_timeout"),
        Kind::RegistryDeleted => {
            let part = rng.pick(&["order", "state", "beats"]);
            let (locks, prefix) = rng.pick(&REGISTRIES);
            delete(raw, rng, locks, &format!("{prefix}_{part}"))
        }
        Kind::TokenDeleted => delete(raw, rng, ANY, "redisson_lock_token"),
        Kind::ForceUnlocked => force(url, rng),
        _ => return None,
    })
}

fn delete(raw: &mut Raw, rng: &mut Rng, locks: &[&str], prefix: &str) -> bool {
    once(raw, rng, locks, |raw, lock| {
        raw.call(&["DEL", &format!("{prefix}:{{{lock}}}")]).int() == 1
    })
}

/// Tries one of these locks after another until the fault takes effect.
fn once(
    raw: &mut Raw,
    rng: &mut Rng,
    locks: &[&str],
    mut act: impl FnMut(&mut Raw, &str) -> bool,
) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let lock = rng.pick(locks);
        if act(raw, lock) {
            return true;
        }
    }
    false
}

/// Replaces the lock with a list for a while.
fn overwrite(raw: &mut Raw, rng: &mut Rng) -> bool {
    let mut which = String::new();
    let done = once(raw, rng, ANY, |raw, lock| {
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
            let name = rng.pick(ANY);
            let ended = if READ_WRITE.contains(&name) {
                client.rw_lock(name).force_unlock().await
            } else if SEMAPHORES.contains(&name) {
                client.semaphore(name, LIMIT).force_unlock().await
            } else {
                client.fair_lock(name).force_unlock().await.map(usize::from)
            };
            forced = ended.is_ok_and(|ended| ended > 0);
        }
        client.shutdown().await;
        forced
    })
}
