//! What can happen to a lock with shares.

use super::super::rng::Rng;
use super::super::run::{client, owner, request};
use super::run::Run;
use fairlock_core::{Acquire, Kind, Mode, Op, OwnerId, Rules, Share, ShareAcquire, Token};

pub(super) const OWNERS: u64 = 9;
pub(super) const CLIENTS: u64 = 3;

/// Whose operation it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Owner(u64),
    /// One of those who hold a share, if somebody does.
    Holder(u64),
}

/// The hold that an operation names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Own,
    Earlier,
    Later,
    /// Its token with another request of its owner: that of a former hold.
    Former,
}

/// A key that somebody takes away.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Lock,
    Order,
    State,
    Beats,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Time(i64),
    Inbox {
        client: u64,
        on: bool,
    },
    Acquire {
        who: u64,
        request: u64,
        lease_ms: u64,
        mode: Mode,
        share: Share,
        returns: bool,
        late: bool,
        sure: bool,
        shared: bool,
    },
    Release {
        who: Who,
        token: Named,
        keep: u32,
        change: u64,
    },
    Reenter {
        who: Who,
        token: Named,
        count: u32,
        change: u64,
    },
    Downgrade {
        who: Who,
        token: Named,
    },
    Renew {
        who: Who,
        token: Named,
        ttl_ms: u64,
    },
    Leave {
        who: Who,
        request: u64,
        bury: bool,
    },
    Beat {
        client: u64,
        waiters: Vec<u64>,
    },
    Nudge,
    Force,
    Place {
        who: u64,
    },
    Inspect {
        limit: u32,
    },
    /// Whether somebody of Redisson's listens.
    Guests(bool),
    Fault(Fault),
}

/// A history.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) rules: Rules,
    pub(super) steps: Vec<Step>,
}

fn permits(n: u32, limit: u32) -> Share {
    Share::Permits { n, limit }
}

/// The shares of a kind that tests ask for.
pub(super) fn shares(kind: Kind) -> [Share; 3] {
    match kind {
        Kind::ReadWrite => [Share::Read, Share::Read, Share::Whole],
        _ => [permits(1, 3), permits(2, 3), permits(3, 3)],
    }
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = rng.pick(&[Kind::ReadWrite, Kind::Semaphore]);
        let rules =
            Rules { java_fleet: rng.chance(10), presence: rng.chance(90), ..Rules::default() };
        let mut steps: Vec<_> =
            (0..CLIENTS).map(|client| Step::Inbox { client, on: rng.chance(80) }).collect();
        for _ in 0..rng.between(20, 120) {
            steps.push(step(&mut rng, kind));
        }
        Self { kind, rules, steps }
    }
}

fn step(rng: &mut Rng, kind: Kind) -> Step {
    let who = |rng: &mut Rng| match rng.chance(70) {
        true => Who::Holder(rng.below(4)),
        false => Who::Owner(rng.below(OWNERS)),
    };
    let named = |rng: &mut Rng| match rng.below(20) {
        0 => Named::Earlier,
        1 => Named::Later,
        2..5 => Named::Former,
        _ => Named::Own,
    };
    match rng.below(100) {
        0..14 => Step::Time(time(rng)),
        14 => Step::Guests(rng.chance(60)),
        15..17 => Step::Inbox { client: rng.below(CLIENTS), on: rng.chance(60) },
        17..50 => {
            let mut share = rng.pick(&shares(kind));
            if kind == Kind::Semaphore && rng.chance(15) {
                share = rng.pick(&[permits(1, 5), permits(4, 5), permits(1, 2)]);
            }
            Step::Acquire {
                who: rng.below(OWNERS),
                request: rng.below(4),
                lease_ms: rng.pick(&[1_000, 7_000, 30_000, 100_000]),
                mode: if rng.chance(70) { Mode::Wait } else { Mode::Try },
                share,
                returns: rng.chance(15),
                late: rng.chance(3),
                sure: rng.chance(20),
                shared: rng.chance(15),
            }
        }
        50..64 => Step::Release {
            who: who(rng),
            token: named(rng),
            keep: if rng.chance(20) { 1 + rng.below(3) as u32 } else { 0 },
            change: rng.below(4),
        },
        64..67 => Step::Reenter {
            who: who(rng),
            token: named(rng),
            count: 1 + rng.below(4) as u32,
            change: rng.below(4),
        },
        67..71 if kind == Kind::ReadWrite => Step::Downgrade { who: who(rng), token: named(rng) },
        71..77 => Step::Renew {
            who: who(rng),
            token: named(rng),
            ttl_ms: rng.pick(&[1, 2_000, 30_000, 60_000]),
        },
        77..82 => {
            let who = if rng.chance(60) { Who::Owner(rng.below(OWNERS)) } else { who(rng) };
            Step::Leave { who, request: rng.below(4), bury: rng.chance(30) }
        }
        82..93 => {
            let client = rng.below(CLIENTS);
            let waiters = (0..rng.below(4)).map(|_| rng.below(OWNERS)).collect();
            Step::Beat { client, waiters }
        }
        93..95 => Step::Nudge,
        95 => Step::Force,
        96 => Step::Place { who: rng.below(OWNERS) },
        97 => Step::Inspect { limit: rng.below(4) as u32 },
        _ => Step::Fault(rng.pick(&[Fault::Lock, Fault::Order, Fault::State, Fault::Beats])),
    }
}

/// By how many microseconds the clock moves.
fn time(rng: &mut Rng) -> i64 {
    match rng.below(40) {
        0 => -((rng.below(40_000_000)) as i64),
        1 => 90_000_000,
        2..5 => rng.between(6_000_000, 40_000_000) as i64,
        5..9 => 1_000,
        9..14 => rng.pick(&[1_000_000, 2_000_000, 6_000_000, 7_000_000, 30_000_000]),
        _ => rng.below(2_500_000) as i64,
    }
}

impl Run<'_> {
    fn who(&self, who: Who) -> OwnerId {
        let holds = self.lock.shares().map(|shares| shares.holds());
        match who {
            Who::Owner(number) => owner(number),
            Who::Holder(nth) => {
                let holders = holds.filter(|holds| !holds.is_empty());
                let nth = |all: &std::collections::BTreeMap<OwnerId, _>| {
                    all.keys().nth(nth as usize % all.len()).cloned()
                };
                holders.and_then(nth).unwrap_or_else(|| owner(nth_owner(who)))
            }
        }
    }

    fn token(&self, who: &OwnerId, named: Named) -> Token {
        let holds = self.lock.shares().and_then(|shares| shares.holds().get(who));
        let last = self.lock.snapshot().token.unwrap_or(1);
        let own = holds.map_or(last, |hold| hold.token.get());
        let number = match named {
            Named::Own | Named::Former => own,
            Named::Earlier => own - 1,
            Named::Later => last + 5,
        };
        Token::new(number).unwrap_or_else(|| Token::new(1).expect("1 is a token"))
    }

    /// The operation on the hold that it names.
    fn of_hold(&self, op: Op, who: &OwnerId, named: Named) -> Op {
        let holds = self.lock.shares().and_then(|shares| shares.holds().get(who));
        let own = holds.map(|hold| hold.request);
        let others = (0..OWNERS).flat_map(|n| (0..4).map(move |number| request(n, number)));
        let former =
            others.into_iter().find(|other| Some(*other) != own).expect("there are several");
        let request = match named {
            Named::Former => former,
            _ => own.unwrap_or(former),
        };
        op.of_hold(self.kind, request, self.fixture.now_us() / 1_000)
    }

    pub(super) fn resolve(&self, step: &Step) -> Op {
        let kind = self.kind;
        match step {
            Step::Acquire {
                who,
                request: number,
                lease_ms,
                mode,
                share,
                returns,
                late,
                sure,
                shared,
            } => {
                let id = owner(*who);
                let now_ms = self.fixture.now_us() / 1_000;
                let acquire = Acquire {
                    kind,
                    order: self.orders.get(&id).copied().filter(|_| *returns),
                    owner: id,
                    request: request(*who, *number),
                    lease_ms: *lease_ms,
                    mode: *mode,
                    not_after_ms: if *late { now_ms - 1 } else { now_ms + 7_000 * number },
                    sure: *sure,
                    shared_owner: *shared,
                };
                Op::AcquireShare(Box::new(ShareAcquire { acquire, share: *share }))
            }
            Step::Release { who, token, keep, change } => {
                let (owner, named) = (self.who(*who), *token);
                let (token, keep, change) = (self.token(&owner, named), *keep, *change);
                let op = Op::Release { kind, token, owner: owner.clone(), keep, change };
                self.of_hold(op, &owner, named)
            }
            Step::Reenter { who, token, count, change } => {
                let (owner, named) = (self.who(*who), *token);
                let (token, count, change) = (self.token(&owner, named), *count, *change);
                let op = Op::Reenter { owner: owner.clone(), token, count, change };
                self.of_hold(op, &owner, named)
            }
            Step::Downgrade { who, token } => {
                let (owner, named) = (self.who(*who), *token);
                let op = Op::Downgrade { token: self.token(&owner, named), owner: owner.clone() };
                self.of_hold(op, &owner, named)
            }
            Step::Renew { who, token, ttl_ms } => {
                let (owner, named) = (self.who(*who), *token);
                let (token, ttl_ms) = (self.token(&owner, named), *ttl_ms);
                let op = Op::Renew { kind, token, owner: owner.clone(), ttl_ms };
                self.of_hold(op, &owner, named)
            }
            Step::Leave { who, request: number, bury } => {
                let owner = self.who(*who);
                let holds = self.lock.shares().and_then(|shares| shares.holds().get(&owner));
                let number = (0..OWNERS)
                    .find(|n| super::super::run::owner(*n) == owner)
                    .map(|n| request(n, *number));
                let request =
                    holds.map(|hold| hold.request).or(number).expect("an owner of the plan");
                Op::Leave { kind, owner, request, bury: *bury, shared_owner: false }
            }
            Step::Beat { client: number, waiters } => {
                let waiters = waiters.iter().map(|n| owner(*n)).collect();
                Op::Beat { client: client(*number), waiters }.on(kind)
            }
            Step::Nudge => Op::Nudge.on(kind),
            Step::Force => Op::Force { kind },
            Step::Place { who } => Op::Place { owner: owner(*who) }.on(kind),
            Step::Inspect { limit } => Op::Inspect { kind, limit: *limit },
            other => unreachable!("{other:?} is no operation"),
        }
    }
}

fn nth_owner(who: Who) -> u64 {
    match who {
        Who::Owner(number) | Who::Holder(number) => number,
    }
}
