//! Entering a queue while the lock is held, which has a short way (`enter_plain.lua`), compared
//! with the core. Each unusual content of the keys is tried alone on both ways, and in combination
//! with others where the short way applies.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, client, owner, request};
use fairlock_core::{Acquire, Kind, Mode, Op, OwnerId, RequestId, Rules, Snapshot, SnapshotWaiter};
use fairlock_testkit::server::Generation;

const START_MS: u64 = START_US / 1_000;

/// The holder, the waiter, and the owner that enters.
const HOLDS: u64 = 0;
const WAITS: u64 = 1;
const ENTERS: u64 = 2;

struct Scene {
    rules: Rules,
    keys: Snapshot,
    asks: Acquire,
    given_up: bool,
}

/// The usual scene: one owner of ours holds, another waits, a third enters; all keys are in order.
fn usual() -> Scene {
    let mut keys = Snapshot { token: Some(START_US - 900), ..Snapshot::default() };
    keys.token_expires = Some(START_MS + 3_600_000);
    keys.hold.insert(owner(HOLDS), 1);
    keys.hold_expires = Some(START_MS + 20_000);
    let first = owner(WAITS);
    keys.queue.push_back(first.clone());
    keys.scores.insert(first.clone(), (START_MS + 299_000) as i64);
    keys.order.insert(first.clone(), START_US - 800);
    keys.waiters.insert(first, record(request(WAITS, 0)));
    keys.record.given = Some(START_US - 800);
    keys.beats.insert(client(WAITS), START_MS - 1);
    keys.beats.insert(client(ENTERS), START_MS - 999);
    for expires in [&mut keys.queue_expires, &mut keys.scores_expires] {
        *expires = Some(START_MS + 80_000_000);
    }
    for expires in [&mut keys.order_expires, &mut keys.state_expires, &mut keys.beats_expires] {
        *expires = Some(START_MS + 59_000);
    }
    let asks = Acquire {
        kind: Kind::Fair,
        owner: owner(ENTERS),
        request: request(ENTERS, 0),
        lease_ms: 30_000,
        mode: Mode::Wait,
        order: None,
        not_after_ms: START_MS,
        sure: true,
        shared_owner: false,
    };
    Scene { rules: Rules::default(), keys, asks, given_up: false }
}

fn record(request: RequestId) -> SnapshotWaiter {
    SnapshotWaiter { request, lease_ms: 30_000, sure: false }
}

/// A foreign owner with this name.
fn foreign(name: &str) -> OwnerId {
    let owner = OwnerId::parse(name.as_bytes());
    assert!(!owner.is_ours(), "{name}");
    owner
}

fn java() -> OwnerId {
    foreign("00000001-0000-4000-8000-000000000000:1")
}

fn held_by(s: &mut Scene, owner: OwnerId) {
    s.keys.hold = [(owner, 1)].into();
}

/// A deviation from the usual scene.
type Other = (&'static str, fn(&mut Scene));

const OTHERS: [Other; 40] = [
    ("Java holds", |s| held_by(s, java())),
    ("an id in capitals holds", |s| held_by(s, foreign("0000000A-0000-8000-8000-000000000000:1"))),
    ("an id too long holds", |s| {
        held_by(s, foreign("00000001-0000-8000-8000-000000000000:1234567890123456"));
    }),
    ("two hold", |s| {
        s.keys.hold.insert(java(), 1);
    }),
    ("it holds", |s| held_by(s, owner(ENTERS))),
    ("it holds beside another", |s| {
        s.keys.hold.insert(owner(ENTERS), 1);
    }),
    ("nobody holds", |s| {
        s.keys.hold.clear();
        s.keys.hold_expires = None;
    }),
    ("the hold has no TTL", |s| s.keys.hold_expires = None),
    ("nobody waits", |s| {
        s.keys.queue.clear();
        s.keys.scores.clear();
        s.keys.order.clear();
        s.keys.waiters.clear();
    }),
    ("Java waits in front", |s| s.keys.queue.push_front(java())),
    ("Java waits at the end", |s| {
        s.keys.queue.push_back(java());
        s.keys.scores.insert(java(), (START_MS + 900_000) as i64);
    }),
    ("the last has no score", |s| s.keys.queue.push_back(java())),
    ("the order is lost", |s| s.keys.order.clear()),
    ("a number without a waiter", |s| {
        s.keys.order.insert(owner(5), START_US - 900);
    }),
    ("the state is lost", |s| {
        s.keys.waiters.clear();
        s.keys.record.given = None;
        // The remaining record is then the only one, and may live longer than an entry would allow.
        s.keys.state_expires = Some(START_MS + 80_000);
    }),
    // Clients of former versions do not store it.
    ("no number is known as given", |s| s.keys.record.given = None),
    ("the last number is ahead of the one given, and of the clock", |s| {
        s.keys.order.insert(owner(5), START_US + 9);
    }),
    ("the number given is ahead of the clock", |s| s.keys.record.given = Some(START_US + 7)),
    ("the number given is now", |s| s.keys.record.given = Some(START_US)),
    ("its beat is half a period old", |s| {
        s.keys.beats.insert(client(ENTERS), START_MS - 1_000);
    }),
    ("its beat is ahead of the clock", |s| {
        s.keys.beats.insert(client(ENTERS), START_MS + 1);
    }),
    ("it has no beat", |s| {
        s.keys.beats.remove(&client(ENTERS));
    }),
    ("the state lasts longer", |s| s.keys.state_expires = Some(START_MS + 60_001)),
    ("the state lasts as long", |s| s.keys.state_expires = Some(START_MS + 60_000)),
    ("the keys have no TTL", |s| {
        (s.keys.state_expires, s.keys.order_expires, s.keys.beats_expires) = (None, None, None);
        (s.keys.queue_expires, s.keys.scores_expires) = (None, None);
    }),
    ("it stands in the list", |s| s.keys.queue.push_back(owner(ENTERS))),
    ("it has a score", |s| {
        s.keys.scores.insert(owner(ENTERS), (START_MS + 400_000) as i64);
    }),
    ("it has a number", |s| {
        s.keys.order.insert(owner(ENTERS), START_US - 700);
    }),
    ("it has a record", |s| {
        s.keys.waiters.insert(owner(ENTERS), record(request(ENTERS, 1)));
    }),
    ("it was given up", |s| s.given_up = true),
    ("it comes too late", |s| s.asks.not_after_ms = START_MS - 1),
    ("it only tries", |s| s.asks.mode = Mode::Try),
    ("it returns", |s| s.asks.order = Some(START_US - 850)),
    ("it is shared", |s| s.asks.shared_owner = true),
    ("it wants a plain lock", |s| s.asks.kind = Kind::Plain),
    ("its inbox is looked at", |s| s.asks.sure = false),
    ("the lease is longer", |s| s.asks.lease_ms = 100_000),
    ("Java is about", |s| s.rules.java_fleet = true),
    ("subscribers are not counted", |s| s.rules.presence = false),
    ("the patience with a waiter is short", |s| s.rules.fair_wait_ms = 5_000),
];

/// # Errors
/// If server and core differ in the answer, a key or a message.
fn enters(fixture: &mut Fixture, others: &[Other]) -> Result<(), String> {
    let mut scene = usual();
    for (_, change) in others {
        change(&mut scene);
    }
    // A missing key has no TTL.
    let keys = &mut scene.keys;
    for (expires, exists) in [
        (&mut keys.queue_expires, !keys.queue.is_empty()),
        (&mut keys.scores_expires, !keys.scores.is_empty()),
        (&mut keys.order_expires, !keys.order.is_empty()),
        (&mut keys.beats_expires, !keys.beats.is_empty()),
    ] {
        *expires = expires.filter(|_| exists);
    }
    if !keys.has_state() {
        keys.state_expires = None;
    }
    if keys.hold.is_empty() {
        keys.hold_expires = None;
    }
    fixture.reset(START_US);
    fixture.write(&scene.keys);
    let mut seen = Seen::new();
    let mut run = Run::new(fixture, scene.rules, scene.keys, &mut seen);
    if scene.given_up {
        run.both(&Op::Leave {
            kind: Kind::Fair,
            owner: owner(ENTERS),
            request: request(ENTERS, 0),
            bury: true,
            shared_owner: false,
        })?;
    }
    run.both(&Op::Acquire(scene.asks))?;
    Ok(())
}

#[test]
fn both_ways_into_a_queue_are_the_same() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let mut enter = |long_way, others: &[Other]| {
        fixture.long_way = long_way;
        enters(&mut fixture, others).unwrap_or_else(|story| {
            let names: Vec<_> = others.iter().map(|(name, _)| *name).collect();
            panic!("{names:?}, long way {long_way}: {story}")
        });
    };
    enter(false, &[]);
    enter(true, &[]);
    for (at, first) in OTHERS.iter().enumerate() {
        enter(true, &[*first]);
        enter(false, &[*first]);
        for second in &OTHERS[at + 1..] {
            enter(false, &[*first, *second]);
        }
    }
}
