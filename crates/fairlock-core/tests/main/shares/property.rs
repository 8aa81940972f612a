//! Random sequences of a read-write lock and of a semaphore: several clients and owners, every operation sometimes sent
//! twice, deaf and dead clients, time that creeps, leaps and goes back. Owners are used again, and operations on their
//! former holds arrive late. A [`Keeper`] decides what is right. At the end the faults stop, and every live waiter must
//! be served.
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use super::keeper::Keeper;
use crate::support::{Ears, client, ours, play_cases, request};
use fairlock_core::{
    Acquire, Body, Fate, Grant, Kind, LockState, Mode, Op, OwnerId, Payload, RequestId, Rules,
    Share, ShareAcquire, Token,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CASES: u32 = 2_000;
/// On average; together with [`CASES`] 100 000 operations of each kind.
const ACTS: usize = 50;
const T0: u64 = 1_760_000_000_000;
/// Rounds of heartbeats until everybody is served: deaths, an amnesty and a gathering.
const ROUNDS: u32 = 60;

/// How many holds of its owner are later than the one that is meant.
type Past = usize;

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Back(u64),
    Acquire { who: (u64, u64), share: Share, mode: Mode, lease: u64, sure: bool },
    Release { who: (u64, u64), past: Past, keep: u32 },
    Reenter { who: (u64, u64), past: Past },
    Downgrade { who: (u64, u64), past: Past },
    Renew { who: (u64, u64), past: Past, ttl: u64 },
    Leave { who: (u64, u64), bury: bool },
    Beat(u64),
    Nudge,
    Force,
    Inspect,
    Place((u64, u64)),
    Deaf(u64, bool),
    Gone(u64),
    Guests(bool),
}

impl Act {
    /// The client that sends it.
    fn client(&self) -> Option<u64> {
        match self {
            Self::Acquire { who, .. }
            | Self::Release { who, .. }
            | Self::Reenter { who, .. }
            | Self::Downgrade { who, .. }
            | Self::Renew { who, .. }
            | Self::Leave { who, .. }
            | Self::Place(who) => Some(who.0),
            Self::Beat(who) => Some(*who),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    acts: Vec<(Act, bool)>,
}

fn who() -> impl Strategy<Value = (u64, u64)> {
    (1..5_u64, 1..4_u64)
}

/// An owner, and one of its holds: usually the latest.
fn named() -> impl Strategy<Value = ((u64, u64), Past)> {
    (who(), prop_oneof![3 => Just(0_usize), 1 => 1..3_usize])
}

fn shares(kind: Kind) -> BoxedStrategy<Share> {
    if kind == Kind::ReadWrite {
        return prop_oneof![2 => Just(Share::Read), 1 => Just(Share::Whole)].boxed();
    }
    let limit = prop_oneof![4 => Just(4_u32), 1 => Just(2), 1 => Just(6)];
    limit.prop_flat_map(|limit| (1..=limit).prop_map(move |n| Share::Permits { n, limit })).boxed()
}

fn acts(kind: Kind, wild: bool) -> BoxedStrategy<Act> {
    let pass = prop_oneof![
        6 => 0..900_u64,
        4 => 900..2_100_u64,
        1 => 2_100..7_000_u64,
        1 => Just(31_000),
    ];
    let mode = prop_oneof![4 => Just(Mode::Wait), 1 => Just(Mode::Try)];
    let lease = prop_oneof![Just(30_000_u64), Just(1_000), 1..100_000_u64];
    let acquire = (who(), shares(kind), mode, lease, any::<bool>())
        .prop_map(|(who, share, mode, lease, sure)| Act::Acquire { who, share, mode, lease, sure });
    let usual = prop_oneof![
        8 => pass.prop_map(Act::Pass),
        12 => acquire,
        7 => (named(), prop_oneof![6 => Just(0_u32), 1 => 1..4_u32])
            .prop_map(|((who, past), keep)| Act::Release { who, past, keep }),
        1 => named().prop_map(|(who, past)| Act::Reenter { who, past }),
        2 => named().prop_map(|(who, past)| Act::Downgrade { who, past }),
        2 => (named(), 1_000..40_000_u64)
            .prop_map(|((who, past), ttl)| Act::Renew { who, past, ttl }),
        3 => (who(), any::<bool>()).prop_map(|(who, bury)| Act::Leave { who, bury }),
        10 => (1..5_u64).prop_map(Act::Beat),
        1 => Just(Act::Nudge),
        1 => Just(Act::Inspect),
        2 => who().prop_map(Act::Place),
        1 => (1..5_u64, any::<bool>()).prop_map(|(who, deaf)| Act::Deaf(who, deaf)),
        1 => any::<bool>().prop_map(Act::Guests),
    ];
    if !wild {
        return usual.boxed();
    }
    let fault = prop_oneof![
        1 => (0..4_000_000_u64).prop_map(Act::Back),
        1 => (0..8 * 86_400_000_u64).prop_map(Act::Pass),
        2 => Just(Act::Force),
        2 => (1..5_u64).prop_map(Act::Gone),
    ];
    prop_oneof![16 => usual, 1 => fault].boxed()
}

fn cases(kind: Kind) -> impl Strategy<Value = Case> {
    any::<bool>().prop_flat_map(move |wild| {
        prop::collection::vec((acts(kind, wild), any::<bool>()), 1..2 * ACTS)
            .prop_map(|acts| Case { acts })
    })
}

/// What the clients remember about their owners.
#[derive(Clone, Debug, Default)]
struct Known {
    request: u64,
    /// Request and token of each hold, the latest last.
    holds: Vec<(RequestId, Token)>,
    changes: u64,
}

impl Known {
    fn got(&mut self, request: RequestId, token: Token) {
        if self.holds.last() != Some(&(request, token)) {
            self.holds.push((request, token));
        }
    }
}

struct Play {
    kind: Kind,
    now: u64,
    /// Microseconds beyond `now`: each call runs in a microsecond of its own.
    tick: u64,
    rules: Rules,
    ears: Ears,
    lock: LockState,
    keeper: Keeper,
    known: BTreeMap<OwnerId, Known>,
    requests: u64,
}

type Checked<T = ()> = Result<T, String>;

impl Play {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            now: T0,
            tick: 0,
            rules: Rules::default(),
            ears: Ears::default(),
            lock: LockState::default(),
            keeper: Keeper::default(),
            known: BTreeMap::new(),
            requests: 0,
        }
    }

    /// Sends an operation, perhaps twice, and checks all of its consequences.
    fn send(&mut self, op: &Op, twice: bool) -> Checked<Body> {
        let (body, more) = self.send_once(op)?;
        if !twice || more || matches!(op, Op::Force { .. }) {
            return Ok(body);
        }
        let before = self.lock.shares().cloned();
        let (again, _) = self.send_once(op)?;
        let fits = match (&body, &again) {
            (Body::Released, Body::NotHeld { .. })
            | (Body::Left | Body::Freed, Body::Nothing)
            | (Body::NotHeld { .. }, Body::NotHeld { .. })
            | (Body::Queued { .. }, Body::Queued { .. })
            | (Body::Fates { .. }, Body::Fates { .. }) => true,
            _ => body == again,
        };
        if !fits {
            return Err(format!("{op:?}: {body:?}, and a second copy {again:?}"));
        }
        let after = self.lock.shares();
        if before.as_ref().map(|s| s.holds()) != after.map(|s| s.holds()) {
            return Err(format!("a second {op:?} changed {before:#?} to {after:#?}"));
        }
        Ok(body)
    }

    fn send_once(&mut self, op: &Op) -> Checked<(Body, bool)> {
        self.tick = (self.tick + 1) % 1_000;
        self.keeper.time_is(self.now, &self.ears, &self.rules);
        let at_us = self.now * 1_000 + self.tick;
        let (answer, effects) =
            self.lock.apply(at_us, op, &self.rules, &self.ears).map_err(|e| e.to_string())?;
        if answer.now_ms != self.now {
            return Err("another time in the reply".to_owned());
        }
        let said = (op, &answer.body, answer.more);
        self.keeper.note(self.now, said, &effects, &self.ears, &self.lock)?;
        for effect in &effects {
            if let Payload::Grant { grant, .. } = &effect.payload {
                self.learn(grant);
            }
        }
        match (op, &answer.body) {
            (Op::AcquireShare(ask), Body::Granted { token, .. }) => {
                let known = self.known.entry(ask.acquire.owner.clone()).or_default();
                known.got(ask.acquire.request, *token);
            }
            (_, Body::Fates { fates, .. }) => {
                for fate in fates {
                    if let Fate::Granted(grant) = fate {
                        self.learn(grant);
                    }
                }
            }
            _ => {}
        }
        Ok((answer.body, answer.more))
    }

    fn learn(&mut self, grant: &Grant) {
        let mut all = self.known.values_mut();
        if let Some(known) = all.find(|known| request(known.request) == grant.request) {
            known.got(grant.request, grant.token);
        }
    }

    fn act(&mut self, act: &Act, twice: bool) -> Checked {
        match act {
            Act::Pass(ms) => {
                self.now += ms;
                self.keeper.disturbed |= *ms > 50_000;
            }
            Act::Back(ms) => {
                // Otherwise a lease that was over, and that nobody needed, would run again.
                self.send(&Op::Nudge, false)?;
                self.now -= ms;
                self.keeper.disturbed = true;
            }
            Act::Deaf(who, true) => drop(self.ears.deaf.insert(client(*who))),
            Act::Deaf(who, false) => drop(self.ears.deaf.remove(&client(*who))),
            Act::Guests(on) => self.ears.guests = *on,
            Act::Gone(who) => drop(self.ears.gone.insert(client(*who))),
            act => {
                if let Some(op) = self.op(act) {
                    self.send(&op, twice)?;
                }
            }
        }
        Ok(())
    }

    /// The third owner of every client is shared between requests. A client that is gone sends nothing.
    fn op(&mut self, act: &Act) -> Option<Op> {
        let kind = self.kind;
        if act.client().is_some_and(|who| self.ears.gone.contains(&client(who))) {
            return None;
        }
        let owner = |who: &(u64, u64)| ours(who.0, who.1);
        let change = |known: &mut BTreeMap<OwnerId, Known>, who: &(u64, u64), past: Past| {
            let known = known.get_mut(&owner(who))?;
            known.changes += 1;
            let (request, token) = *known.holds.iter().rev().nth(past)?;
            Some((owner(who), request, token, known.changes))
        };
        Some(match act {
            Act::Acquire { who, share, mode, lease, sure } => {
                return self.acquire(*who, *share, *mode, *lease, *sure);
            }
            Act::Release { who, past, keep } => {
                let (owner, request, token, change) = change(&mut self.known, who, *past)?;
                let op = Op::Release { kind, owner, token, keep: *keep, change };
                op.of_hold(kind, request, self.now)
            }
            Act::Reenter { who, past } => {
                let (owner, request, token, change) = change(&mut self.known, who, *past)?;
                Op::Reenter { owner, token, count: 2, change }.of_hold(kind, request, self.now)
            }
            Act::Downgrade { who, past } if kind == Kind::ReadWrite => {
                let (owner, request, token, _) = change(&mut self.known, who, *past)?;
                Op::Downgrade { owner, token }.of_hold(kind, request, self.now)
            }
            Act::Renew { who, past, ttl } => {
                let (owner, request, token, _) = change(&mut self.known, who, *past)?;
                let op = Op::Renew { kind, owner, token, ttl_ms: *ttl };
                op.of_hold(kind, request, self.now)
            }
            Act::Leave { who, bury } => {
                let request = request(self.known.get(&owner(who))?.request);
                let shared_owner = who.1 == 3;
                Op::Leave { kind, owner: owner(who), request, bury: *bury, shared_owner }
            }
            Act::Beat(who) => Op::Beat { client: client(*who), waiters: self.waiters_of(*who) },
            Act::Nudge => Op::Nudge,
            Act::Force => Op::Force { kind },
            Act::Place(who) => Op::Place { owner: owner(who) },
            _ => Op::Inspect { kind, limit: 10 },
        })
    }

    fn waiters_of(&self, who: u64) -> Vec<OwnerId> {
        let mut own: Vec<_> = self.keeper.waiting.iter().collect();
        own.retain(|(owner, _)| owner.client() == Some(client(who)));
        own.sort_by_key(|(_, waits)| waits.order);
        own.into_iter().map(|(owner, _)| owner.clone()).collect()
    }

    fn acquire(
        &mut self,
        who: (u64, u64),
        share: Share,
        mode: Mode,
        lease_ms: u64,
        sure: bool,
    ) -> Option<Op> {
        let (owner, kind) = (ours(who.0, who.1), self.kind);
        if let Some(waits) = self.keeper.waiting.get(&owner) {
            // It already waits: another copy.
            let (acquire, share) = (waits.acquire.clone(), waits.share);
            return Some(Op::AcquireShare(Box::new(ShareAcquire { acquire, share })));
        }
        let shared_owner = who.1 == 3;
        let held = self.keeper.holds.contains_key(&owner);
        let known = self.known.entry(owner.clone()).or_default();
        // Of an owner that serves one request at a time, only a copy finds a hold.
        if !held || shared_owner {
            self.requests += 1;
            known.request = self.requests;
        }
        let acquire = Acquire {
            kind,
            owner,
            request: request(known.request),
            lease_ms,
            mode,
            order: None,
            not_after_ms: self.now + 30_000,
            sure,
            shared_owner,
        };
        Some(Op::AcquireShare(Box::new(ShareAcquire { acquire, share })))
    }

    /// No more faults: every client sends heartbeats, returns when told to, and releases at once.
    fn drain(&mut self) -> Checked {
        let is_there = |ears: &Ears, owner: &OwnerId| {
            owner.client().is_none_or(|client| !ears.gone.contains(&client))
        };
        let mut wanted: Vec<OwnerId> = self.keeper.waiting.keys().cloned().collect();
        wanted.retain(|owner| is_there(&self.ears, owner));
        self.keeper.served.clear();
        for _ in 0..ROUNDS {
            let served = std::mem::take(&mut self.keeper.served);
            wanted.retain(|owner| !served.contains(owner));
            if wanted.is_empty() {
                return Ok(());
            }
            let holders = self.keeper.holds.iter();
            let holders: Vec<_> =
                holders.map(|(owner, has)| (owner.clone(), has.request, has.token)).collect();
            for (owner, request, token) in holders {
                if !is_there(&self.ears, &owner) {
                    continue;
                }
                let (kind, token) = (self.kind, Token::new(token).expect("a token"));
                let op = Op::Release { kind, owner, token, keep: 0, change: u64::MAX };
                self.send(&op.of_hold(kind, request, self.now), false)?;
            }
            self.now += self.rules.beat_ms;
            for who in
                (1..5).filter(|who| !self.ears.gone.contains(&client(*who))).collect::<Vec<_>>()
            {
                self.round_of(who)?;
            }
        }
        Err(format!("{wanted:?} not served: {:#?}", self.lock))
    }

    fn round_of(&mut self, who: u64) -> Checked {
        let waiters = self.waiters_of(who);
        if waiters.is_empty() {
            return Ok(());
        }
        let op = Op::Beat { client: client(who), waiters: waiters.clone() };
        // A lock that nobody uses answers as any other.
        let fates = match self.send(&op, false)? {
            Body::Fates { fates, .. } => fates,
            Body::Beaten { queued, .. } if !queued.contains(&true) => {
                vec![Fate::Unknown; queued.len()]
            }
            body => return Err(format!("a heartbeat was answered {body:?}")),
        };
        for (owner, fate) in waiters.into_iter().zip(fates) {
            let Some(waits) = self.keeper.waiting.get(&owner) else { continue };
            if fate != Fate::Unknown {
                continue;
            }
            self.requests += 1;
            let acquire = Acquire {
                request: request(self.requests),
                order: Some(waits.order),
                not_after_ms: self.now + 30_000,
                sure: self.ears.deaf.contains(&client(who)),
                ..waits.acquire.clone()
            };
            let share = waits.share;
            self.known.entry(owner).or_default().request = self.requests;
            self.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share })), false)?;
        }
        Ok(())
    }
}

fn play(kind: Kind, case: &Case) -> Checked {
    let mut play = Play::new(kind);
    for (place, (act, twice)) in case.acts.iter().enumerate() {
        play.act(act, *twice).map_err(|what| format!("act {place}: {what}"))?;
    }
    play.drain()
}

fn every_promise_is_kept(kind: Kind) {
    play_cases(
        CASES,
        &cases(kind),
        |case| play(kind, case),
        |case| {
            let acts: Vec<String> = case.acts.iter().map(|act| format!("{act:?}")).collect();
            acts.join("\n")
        },
    );
}

#[test]
fn random_sequences_of_readers_and_writers_keep_every_promise() {
    every_promise_is_kept(Kind::ReadWrite);
}

#[test]
fn random_sequences_of_permits_keep_every_promise() {
    every_promise_is_kept(Kind::Semaphore);
}
