//! Shares in the file and in the core's state machine: the same operations, the same answers, the same
//! state afterwards. Two connections take turns, so each finds what the other has written.

use super::super::HostFile;
use super::fixture::*;
use crate::ErrorKind;
use fairlock_core::{
    Acquire, Body, ClientId, CoreError, Kind, LockState, Mode, Op, OwnerId, RequestId, Rules,
    Share, ShareAcquire, Token, World,
};
use fairlock_testkit::fuzz::cases;
use fairlock_testkit::tier;
use std::collections::BTreeSet;

const LEASE_MS: u64 = 30_000;
const JOB: &str = "job";
const START_US: u64 = 1_760_000_000_000_000;

/// Who is gone, of those with shares of one lock.
#[derive(Default)]
struct Kernel {
    gone: BTreeSet<ClientId>,
}

impl World for Kernel {
    fn inbox(&self, client: ClientId) -> bool {
        !self.gone.contains(&client)
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }

    fn gone(&self, client: ClientId) -> bool {
        self.gone.contains(&client)
    }

    fn proves_death(&self) -> bool {
        true
    }
}

struct Pair {
    files: [HostFile; 2],
    core: LockState,
    world: Kernel,
    now_us: u64,
    steps: usize,
    _fixture: Fixture,
}

fn rules() -> Rules {
    Rules { ages: false, ..Rules::default() }
}

fn ask(kind: Kind, number: u64, share: Share, mode: Mode) -> Op {
    let acquire = Acquire {
        kind,
        owner: owner(number),
        request: request(number),
        lease_ms: LEASE_MS,
        mode,
        order: None,
        not_after_ms: u64::MAX,
        sure: false,
        shared_owner: false,
    };
    Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))
}

/// A lock without holders and waiters has no shares in the file.
fn kept(core: &LockState) -> LockState {
    let is_used =
        core.shares().is_some_and(|it| !it.holds().is_empty() || !core.snapshot().order.is_empty());
    let shares = core.shares().filter(|_| is_used).cloned();
    LockState::restored(core.snapshot().clone(), shares)
}

impl Pair {
    fn new() -> Self {
        let fixture = Fixture::new();
        Self {
            files: [fixture.open(), fixture.open()],
            core: LockState::default(),
            world: Kernel::default(),
            now_us: START_US,
            steps: 0,
            _fixture: fixture,
        }
    }

    /// Carries out `op` in the core alone.
    fn arrange(&mut self, op: &Op) {
        self.now_us += 1;
        self.core.apply(self.now_us, op, &rules(), &self.world).unwrap();
    }

    /// Copies the core's state into the file.
    fn put(&mut self) {
        let file = &mut self.files[0];
        file.stopped_us = Some(self.now_us);
        file.put(&name(JOB), &self.core).unwrap();
    }

    /// Carries out `op` in both, and compares.
    fn step(&mut self, op: &Op) -> Option<Body> {
        self.now_us += 1;
        self.steps += 1;
        let before = kept(&self.core);
        self.core = before.clone();
        let expected = self.core.apply(self.now_us, op, &rules(), &self.world);
        if expected.is_err() || matches!(op, Op::Inspect { .. } | Op::Place { .. }) {
            self.core = before;
        }
        let file = &mut self.files[self.steps % 2];
        file.stopped_us = Some(self.now_us);
        let found = file.apply(&name(JOB), op, &rules(), &self.world);
        let core = kept(&self.core);
        let says = || format!("{op:?} after {core:#?}");
        let answer = match (expected, found) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(expected, found, "{}", says());
                Some(found.0.body)
            }
            (Err(expected), Err(found)) => {
                let kind = match expected {
                    CoreError::NoSuchShare => ErrorKind::Misuse,
                    _ => ErrorKind::WrongType,
                };
                assert_eq!(found.error.kind(), kind, "{}", says());
                None
            }
            (expected, found) => panic!("{expected:?} and {found:?}: {}", says()),
        };
        // The other connection decodes what this one has written.
        let other = &mut self.files[(self.steps + 1) % 2];
        other.stopped_us = Some(self.now_us);
        assert_eq!(other.state_of(&name(JOB)).unwrap(), core, "{op:?}");
        answer
    }
}

/// What may happen next to a lock in this state: whoever holds first, and whoever waits first, is in it.
fn steps(kind: Kind, core: &LockState) -> Vec<Op> {
    let mut all = vec![Op::Nudge, Op::Force { kind }];
    if let Some((owner, hold)) = core.shares().and_then(|it| it.holds().first_key_value()) {
        let (owner, token) = (owner.clone(), hold.token);
        let release = Op::Release { kind, owner, token, keep: 0, change: 1 };
        all.push(release.of_hold(kind, hold.request, 0));
    }
    let Some(head) = core.line().next().cloned() else { return all };
    let waiter = core.snapshot().waiters[&head].clone();
    let client = head.client().expect("ours");
    all.push(Op::Beat { client, waiters: vec![head.clone()] });
    let (request, bury) = (waiter.request, true);
    all.push(Op::Leave { kind, owner: head, request, bury, shared_owner: false });
    all
}

/// Every line of up to four waiters (three in the commit tier) for these shares, each alive or dead, behind these holders.
fn every_line(kind: Kind, shares: &[Share], holders: &[&[Share]]) -> usize {
    let longest = tier::size(3, 4);
    let mut pair = Pair::new();
    let each = 2 * shares.len();
    for held in holders {
        for gone in 0..1_u64 << held.len() {
            for length in 0..=longest {
                for line in 0..each.pow(length) {
                    pair.core = LockState::default();
                    pair.world.gone.clear();
                    for (at, share) in held.iter().enumerate() {
                        pair.arrange(&ask(kind, at as u64, *share, Mode::Wait));
                    }
                    let mut dead = BTreeSet::new();
                    let mut rest = line;
                    for place in 0..u64::from(length) {
                        let (choice, number) = (rest % each, 10 + place);
                        rest /= each;
                        pair.arrange(&ask(kind, number, shares[choice / 2], Mode::Wait));
                        if choice % 2 == 1 {
                            dead.insert(client(number));
                        }
                    }
                    dead.extend(
                        (0..held.len() as u64).filter(|at| gone >> at & 1 == 1).map(client),
                    );
                    pair.world.gone = dead;
                    let core = pair.core.clone();
                    for op in steps(kind, &core) {
                        pair.core = core.clone();
                        pair.put();
                        pair.step(&op);
                        pair.step(&Op::Nudge);
                    }
                }
            }
        }
    }
    pair.steps
}

#[test]
fn every_small_line_for_a_read_write_lock() {
    let (read, whole) = (Share::Read, Share::Whole);
    let holders: [&[Share]; 4] = [&[], &[whole], &[read], &[read, read]];
    let steps = every_line(Kind::ReadWrite, &[read, whole], &holders);
    println!("measured: {steps} steps");
    assert!(steps > tier::size(1_000, 5_000), "{steps}");
}

#[test]
fn every_small_line_for_permits() {
    let permits = |n, limit| Share::Permits { n, limit };
    let holders: [&[Share]; 2] = [&[permits(2, 2)], &[permits(1, 2), permits(1, 2)]];
    let shares = [permits(1, 2), permits(2, 2), permits(1, 3)];
    let steps = every_line(Kind::Semaphore, &shares, &holders);
    println!("measured: {steps} steps");
    assert!(steps > tier::size(2_000, 15_000), "{steps}");
}

/// Any operations, in any order, while clients die and time passes.
#[test]
fn random_histories() {
    const OWNERS: u64 = 6;
    let mut granted = 0;
    cases("histories of shares in the file", tier::size(75, 150), |rng| {
        let mut pair = Pair::new();
        let mut known: Vec<(OwnerId, Token, RequestId)> = Vec::new();
        let mut kind = Kind::ReadWrite;
        for _ in 0..80 {
            if rng.chance(3) {
                kind = rng.pick(&[Kind::ReadWrite, Kind::Semaphore]);
            }
            if rng.chance(5) {
                pair.world.gone.insert(client(rng.below(OWNERS)));
            }
            if rng.chance(10) {
                pair.now_us += rng.pick(&[1_000_000, 10_000_000, 31_000_000, 700_000_000]);
            }
            let number = rng.below(OWNERS);
            if pair.world.gone.contains(&client(number)) {
                continue;
            }
            let (one, limit) = (1 + rng.below(2) as u32, 2 + rng.below(2) as u32);
            let share = match kind {
                Kind::Semaphore => Share::Permits { n: one, limit },
                _ => rng.pick(&[Share::Read, Share::Whole]),
            };
            let (owner, token, of) = match known.is_empty() || rng.chance(10) {
                true => (owner(number), Token::new(5).unwrap(), request(number)),
                false => rng.pick(&known),
            };
            let op = match rng.below(12) {
                0..=2 => ask(kind, number, share, Mode::Wait),
                3 => ask(kind, number, share, Mode::Try),
                4 | 5 => {
                    Op::Release { kind, owner, token, keep: 0, change: 1 }.of_hold(kind, of, 0)
                }
                6 => Op::Renew { kind, owner, token, ttl_ms: rng.between(1, 60_000) }
                    .of_hold(kind, of, 0),
                7 => Op::Reenter { owner, token, count: 2, change: rng.below(4) }
                    .of_hold(kind, of, 0),
                8 => {
                    let (owner, request) = (super::fixture::owner(number), request(number));
                    Op::Leave { kind, owner, request, bury: rng.chance(30), shared_owner: false }
                }
                9 => Op::Beat {
                    client: client(number),
                    waiters: vec![super::fixture::owner(number)],
                },
                10 => rng.pick(&[
                    Op::Nudge,
                    Op::Inspect { kind, limit: 9 },
                    Op::Force { kind },
                    acquire(number, Mode::Try),
                ]),
                _ => Op::Downgrade { owner, token }.of_hold(kind, of, 0),
            };
            pair.step(&op);
            let now = pair.core.shares().into_iter().flat_map(|it| it.holds());
            known = now.map(|(owner, hold)| (owner.clone(), hold.token, hold.request)).collect();
            granted += known.len();
        }
    });
    assert!(granted > 1_000, "{granted}");
}
