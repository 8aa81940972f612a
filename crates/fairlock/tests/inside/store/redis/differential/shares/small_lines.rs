//! Every small line: up to four waiters (three in the commit tier), each of whom wants one of three shares and is alive or dead, behind every kind
//! of holder, and every operation that serves it. Both sides agree on what the operation does; after it, nobody who is
//! alive and fits is left at the head.

use super::super::fixture::Fixture;
use super::super::run::{START_US, client, owner, request};
use super::dump::{self, Dump};
use super::run::{Run, Seen};
use super::step::shares;
use fairlock_core::{
    Acquire, Kind, Mode, Op, OwnerId, Rules, Share, ShareAcquire, SharedHold, Snapshot,
    SnapshotWaiter, Token,
};
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier;
use std::collections::BTreeMap;

const START_MS: u64 = START_US / 1_000;

/// Client 0 lives, client 1 has been silent for too long and does not listen. Client 2 holds.
fn waiter(place: usize, alive: bool) -> OwnerId {
    OwnerId::ours(client(u64::from(!alive)), 1 + place as u64).expect("a legal number")
}

fn holder() -> OwnerId {
    OwnerId::ours(client(2), 1).expect("a legal number")
}

fn token() -> Token {
    Token::new(START_US - 5_000_000).expect("a token")
}

#[derive(Clone, Copy, Debug)]
enum First {
    Beat,
    Nudge,
    Release,
    Try,
    LeaveHead,
}

/// What a waiter may want, and what the holder may have.
fn wishes(kind: Kind) -> (Vec<Share>, [Option<Share>; 3]) {
    match kind {
        Kind::ReadWrite => {
            let both = vec![Share::Read, Share::Whole];
            (both, [None, Some(Share::Read), Some(Share::Whole)])
        }
        _ => {
            let [one, two, three] = shares(kind);
            (vec![one, two, three], [None, Some(one), Some(three)])
        }
    }
}

fn lines(kind: Kind, longest: usize) -> Vec<Vec<(Share, bool)>> {
    let (wishes, _) = wishes(kind);
    let mut all = vec![vec![]];
    let mut from = 0;
    for _ in 0..longest {
        let to = all.len();
        for at in from..to {
            for share in &wishes {
                for alive in [true, false] {
                    let longer = all[at].iter().copied().chain([(*share, alive)]).collect();
                    all.push(longer);
                }
            }
        }
        from = to;
    }
    all
}

fn state(line: &[(Share, bool)], held: Option<Share>) -> Dump {
    let mut snapshot = Snapshot {
        token: Some(token().get()),
        token_expires: Some(START_MS + 80_000_000),
        ..Snapshot::default()
    };
    let mut wants = BTreeMap::new();
    for (place, (share, alive)) in line.iter().enumerate() {
        let id = waiter(place, *alive);
        let order = START_US - 20_000_000 + place as u64;
        snapshot.order.insert(id.clone(), order);
        let record =
            SnapshotWaiter { request: request(place as u64, 7), lease_ms: 20_000, sure: false };
        snapshot.waiters.insert(id.clone(), record);
        snapshot.record.given = Some(order);
        snapshot
            .beats
            .insert(client(u64::from(!alive)), START_MS - if *alive { 500 } else { 9_000 });
        wants.insert(id, *share);
    }
    if !line.is_empty() {
        let until = Some(START_MS + 50_000);
        (snapshot.order_expires, snapshot.state_expires, snapshot.beats_expires) =
            (until, until, until);
    }
    let hold = held.map(|share| SharedHold {
        request: request(8, 8),
        token: token(),
        share,
        count: 1,
        change: 0,
        ends_ms: START_MS + 15_000,
    });
    let holds = hold.map(|hold| (holder(), hold)).into_iter().collect();
    let over = BTreeMap::new();
    Dump { snapshot, holds, over, wants, mode: None, wrong: Vec::new(), left: Vec::new() }
}

fn first(kind: Kind, first: First, line: &[(Share, bool)]) -> Option<Op> {
    Some(match first {
        First::Beat => {
            let alive = line.iter().enumerate().filter(|(_, (_, alive))| *alive);
            let waiters = alive.map(|(place, _)| waiter(place, true)).collect();
            Op::Beat { client: client(0), waiters }.on(kind)
        }
        First::Nudge => Op::Nudge.on(kind),
        First::Release => {
            let op = Op::Release { kind, owner: holder(), token: token(), keep: 0, change: 1 };
            op.of_hold(kind, request(8, 8), 0)
        }
        First::Try => {
            let acquire = Acquire {
                kind,
                owner: owner(2),
                request: request(9, 9),
                lease_ms: 30_000,
                mode: Mode::Try,
                order: None,
                not_after_ms: START_MS + 1_000,
                sure: false,
                shared_owner: false,
            };
            let share = shares(kind)[0];
            Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))
        }
        First::LeaveHead => {
            let (_, alive) = *line.first()?;
            let owner = waiter(0, alive);
            Op::Leave { kind, owner, request: request(0, 7), bury: false, shared_owner: false }
        }
    })
}

fn every_line(generation: Generation) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    let mut played = 0;
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        for line in lines(kind, tier::size(3, 4)) {
            for held in wishes(kind).1 {
                for op in [First::Beat, First::Nudge, First::Release, First::Try, First::LeaveHead]
                {
                    let Some(op) = first(kind, op, &line) else { continue };
                    fixture.reset(START_US);
                    fixture.inbox(client(0), true);
                    let start = state(&line, held);
                    dump::write(&mut fixture.raw, &fixture.keys, kind, &start);
                    let (lock, mut seen) = (start.lock(kind), Seen::new());
                    let mut run = Run::new(&mut fixture, kind, Rules::default(), lock, &mut seen);
                    // Then, the living wait in peace: nothing that a heartbeat could still change.
                    let beat = first(kind, First::Beat, &line).expect("always");
                    for op in [&op, &beat, &beat] {
                        run.both(op)
                            .unwrap_or_else(|story| panic!("{line:?} behind {held:?}\n{story}"));
                    }
                    played += 1;
                }
            }
        }
    }
    println!("{played} lines");
    assert!(played > 100);
}

#[test]
fn every_small_line_agrees_on_redis_7_0() {
    every_line(Generation::Redis70);
}

#[test]
fn every_small_line_agrees_on_redis_6_2() {
    every_line(Generation::Redis62);
}

#[test]
fn every_small_line_agrees_on_valkey_9_1() {
    every_line(Generation::Valkey91);
}
