//! Heartbeats of those who wait for shares, answered without being applied.

use super::scene::{LEASE, Scene, T0, owner, permits};
use crate::support::{Ears, client};
use fairlock_core::{
    Answer, LockState, Op, REGISTRY_TTL_MS, Rules, SILENT_REGISTRY_TTL_MS, Share, Snapshot,
};

/// The TTL that the registry must have left.
const KEPT_MS: u64 = REGISTRY_TTL_MS;

/// Damages a line in one way.
type Wear = fn(&mut Snapshot);

/// One of the TTLs.
type Ttl = fn(&mut Snapshot) -> &mut Option<u64>;

fn rules() -> Rules {
    Rules { ages: false, ..Rules::default() }
}

/// Two hold shares, and three wait.
fn lines() -> [Scene; 2] {
    let (mut rw, mut pool) = (Scene::rw(), Scene::semaphore());
    (rw.rules, pool.rules) = (rules(), rules());
    for n in 1..=2 {
        rw.gets(n, Share::Read);
        pool.gets(n, permits(2, 4));
    }
    rw.waits(3, Share::Whole);
    pool.waits(3, permits(3, 4));
    for n in 4..=5 {
        rw.waits(n, Share::Read);
        pool.waits(n, permits(1, 4));
    }
    [rw, pool]
}

fn quiet(lock: &LockState, now_ms: u64, rules: &Rules, ears: &Ears, who: u64) -> Option<Answer> {
    lock.quiet_beat(now_ms * 1_000, client(who), &[owner(who)], rules, ears, KEPT_MS)
}

/// The state without what a heartbeat may leave unwritten.
fn without_times(lock: &LockState) -> LockState {
    let mut facts = lock.snapshot().clone();
    facts.beats.clear();
    for at in [&mut facts.order_expires, &mut facts.state_expires, &mut facts.beats_expires] {
        *at = None;
    }
    (facts.record.amnesty, facts.record.silence) = (None, None);
    LockState::restored(facts, lock.shares().cloned())
}

#[test]
fn a_quiet_answer_is_what_applying_gives_and_nothing_but_times_changes() {
    let ears = Ears::default();
    for scene in lines() {
        for who in 1..=5 {
            for later_ms in [1, 2_000, 10_000, LEASE - 1] {
                let (mut lock, now_ms) = (scene.lock.clone(), T0 + later_ms);
                let Some(answer) = quiet(&lock, now_ms, &rules(), &ears, who) else {
                    assert!(who <= 2, "{who} waits, after {later_ms} ms");
                    continue;
                };
                let before = without_times(&lock);
                let op = Op::Beat { client: client(who), waiters: vec![owner(who)] };
                let applied = lock.apply(now_ms * 1_000, &op, &rules(), &ears).unwrap();
                assert_eq!((answer, Vec::new()), applied, "{who} after {later_ms} ms");
                assert_eq!(without_times(&lock), before, "{who} after {later_ms} ms");
            }
        }
    }
}

#[test]
fn a_heartbeat_with_something_to_do_is_not_quiet() {
    let (now_ms, none) = (T0 + 1_000, Ears::default());
    for scene in lines() {
        let asked = |lock: &LockState, at, rules: &Rules, ears: &Ears| {
            quiet(lock, at, rules, ears, 4).is_some()
        };
        assert!(asked(&scene.lock, now_ms, &rules(), &none));
        assert!(!asked(&scene.lock, now_ms, &Rules::default(), &none), "ages count");
        assert!(!asked(&scene.lock, T0 + LEASE + 1, &rules(), &none), "a lease is over");
        assert!(quiet(&scene.lock, now_ms, &rules(), &none, 9).is_none(), "it does not wait");
        for dead in 1..=3 {
            let ears = Ears { gone: [client(dead)].into(), ..Ears::default() };
            assert!(!asked(&scene.lock, now_ms, &rules(), &ears), "{dead} is gone");
        }
        let wear: [(&str, Wear); 3] = [
            ("the order is lost", |facts| facts.order.clear()),
            ("a record is lost", |facts| drop(facts.waiters.pop_last())),
            ("no token is left", |facts| facts.token = Some(fairlock_core::TOKEN_LIMIT)),
        ];
        for (what, wear) in wear {
            let mut facts = scene.lock.snapshot().clone();
            wear(&mut facts);
            let lock = LockState::restored(facts, scene.lock.shares().cloned());
            assert!(!asked(&lock, now_ms, &rules(), &none), "{what}");
        }
    }
}

/// Each TTL that waiting rests on is renewed in time by a heartbeat that is applied.
#[test]
fn the_registry_is_kept() {
    let expiring: [(&str, Ttl); 3] = [
        ("order", |facts| &mut facts.order_expires),
        ("state", |facts| &mut facts.state_expires),
        ("beats", |facts| &mut facts.beats_expires),
    ];
    let (now_ms, ears) = (T0 + 1_000, Ears::default());
    for scene in lines() {
        for (what, at) in expiring {
            for (left_ms, is_quiet) in [(KEPT_MS, true), (KEPT_MS - 1, false)] {
                let mut facts = scene.lock.snapshot().clone();
                *at(&mut facts) = Some(now_ms + left_ms);
                let mut lock = LockState::restored(facts, scene.lock.shares().cloned());
                let answer = quiet(&lock, now_ms, &rules(), &ears, 3);
                assert_eq!(answer.is_some(), is_quiet, "{what}: {left_ms} ms");
                let op = Op::Beat { client: client(3), waiters: vec![owner(3)] };
                lock.apply(now_ms * 1_000, &op, &rules(), &ears).unwrap();
                let kept = at(&mut lock.snapshot().clone()).unwrap() - now_ms;
                assert!(kept >= SILENT_REGISTRY_TTL_MS, "{what}: {kept} ms");
            }
        }
    }
}
