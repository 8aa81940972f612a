//! Readers who are granted together.

use super::super::fixture::Fixture;
use super::super::run::{START_US, client, owner, request};
use super::beside_java::Scene;
use super::run::{Run, Seen};
use Share::{Read, Whole};
use fairlock_core::{
    Acquire, Body, Kind, LockState, Mode, Op, OwnerId, Payload, Rules, Share, ShareAcquire,
};
use fairlock_testkit::server::Generation;

/// The server does nothing else meanwhile: a script ends after 128, and says that there are more.
#[test]
fn a_cohort_is_granted_by_128() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let kind = Kind::ReadWrite;
    let token = rw.gets(0, Whole);
    for n in 1..=300 {
        assert!(matches!(rw.ask(n, Read, Mode::Wait), Body::Queued { .. }), "{n}");
    }
    let release = Op::Release { kind, owner: owner(0), token, keep: 0, change: 1 };
    let mut calls = vec![rw.of_hold(0, release)];
    calls.extend([Op::Nudge.on(kind), Op::Nudge.on(kind)]);
    for (call, (granted, more)) in calls.iter().zip([(128, true), (128, true), (44, false)]) {
        rw.effects.clear();
        let answer = rw.send(call).expect("fine");
        let grants = rw.effects.iter().filter_map(|effect| match &effect.payload {
            Payload::Grant { grant, .. } => Some(grant),
            _ => None,
        });
        let tokens: Vec<_> = grants.map(|grant| grant.token).collect();
        assert_eq!((tokens.len(), answer.more), (granted, more), "{call:?}");
        assert!(tokens.iter().all(|one| *one == tokens[0] && *one > token), "one phase");
    }
}

/// Long lines of three clients, below and above the lengths from which on the scripts write otherwise, behind one that has
/// all: both sides agree on what each entry, the release and the first ends do, with the common cases and without.
#[test]
fn long_lines_agree() {
    let all_of = |kind| match kind {
        Kind::Semaphore => Share::Permits { n: 40, limit: 40 },
        _ => Whole,
    };
    let one_of = |kind| match kind {
        Kind::Semaphore => Share::Permits { n: 1, limit: 40 },
        _ => Read,
    };
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        for (kind, length, is_last) in [
            (Kind::ReadWrite, 2, false),
            (Kind::ReadWrite, 23, true),
            (Kind::ReadWrite, 24, false),
            (Kind::ReadWrite, 128, true),
            (Kind::ReadWrite, 129, false),
            (Kind::Semaphore, 30, true),
        ] {
            for long_way in [false, true] {
                fixture.long_way = long_way;
                fixture.reset(START_US);
                (0..4).for_each(|n| fixture.inbox(client(n), true));
                let (lock, mut seen) = (LockState::default(), Seen::new());
                let mut run = Run::new(&mut fixture, kind, Rules::default(), lock, &mut seen);
                let play = |run: &mut Run<'_>, op: &Op| {
                    let played = run.both(op);
                    let answer = played.unwrap_or_else(|story| panic!("{length}: {op:?}\n{story}"));
                    answer.expect("no fault").more
                };
                let mut asks = vec![all_of(kind)];
                asks.resize(1 + length, one_of(kind));
                if is_last {
                    asks.push(all_of(kind));
                }
                for (n, share) in (0..).zip(asks) {
                    let acquire = Acquire {
                        kind,
                        owner: OwnerId::ours(client(n % 3), 1 + n).expect("a legal number"),
                        request: request(n, 7),
                        lease_ms: 20_000 + n / 50,
                        mode: Mode::Wait,
                        order: None,
                        not_after_ms: START_US / 1_000 + 1_000,
                        sure: false,
                        shared_owner: false,
                    };
                    play(&mut run, &Op::AcquireShare(Box::new(ShareAcquire { acquire, share })));
                }
                for _ in 0..4 {
                    let Some((owner, hold)) = run.dump().holds.into_iter().next() else { break };
                    let release =
                        Op::Release { kind, owner, token: hold.token, keep: 0, change: 1 };
                    let release = release.of_hold(kind, hold.request, 0);
                    let mut more = play(&mut run, &release);
                    while more {
                        more = play(&mut run, &Op::Nudge.on(kind));
                    }
                }
            }
        }
    }
}
