//! Random sequences on a simple lock: owners of ours, every operation sometimes sent twice or late,
//! and foreign clients that write, delete and persist the string as they like. An oracle, kept from
//! replies and from the foreigners' actions, decides what is right.
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use crate::lab::wanted;
use crate::support::{Ears, client, ours, play_cases, request};
use fairlock_core::{
    Acquire, Body, Channel, Kind, LockState, MENDED_HOLD_MS, Mode, Op, OwnerId, RequestId, Rules,
    SimpleValue, Token,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CASES: u32 = 2_000;
const ACTS_MAX: usize = 80;
const T0: u64 = 1_760_000_000_000;

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Acquire {
        who: u64,
        again: bool,
        late: bool,
        lease: u64,
        mode: Mode,
    },
    Release {
        who: u64,
        keep: u32,
    },
    Renew {
        who: u64,
        ttl: u64,
    },
    Leave {
        who: u64,
        bury: bool,
    },
    Force,
    Inspect,
    /// `SET key value NX PX`, or without a TTL.
    TheySet(u8, Option<u64>),
    /// The same without `NX`: a bug of theirs, or an operator.
    TheyOverwrite(u8, Option<u64>),
    /// Compare-and-delete: the lock is theirs.
    TheyRelease,
    Del,
    Persist,
    LoseToken,
}

fn acts() -> impl Strategy<Value = Act> {
    let who = || 1..5_u64;
    let ttl = || prop_oneof![Just(None), (1..40_000_u64).prop_map(Some)];
    let pass = prop_oneof![6 => 0..900_u64, 1 => 900..7_000_u64, 1 => Just(31_000_u64)];
    let mode = prop_oneof![Just(Mode::Wait), Just(Mode::Try)];
    let lease = prop_oneof![Just(30_000_u64), Just(1_000), 1..100_000_u64];
    let acquire = (who(), any::<bool>(), 0..20_u8, lease, mode).prop_map(
        |(who, again, late, lease, mode)| Act::Acquire { who, again, late: late == 0, lease, mode },
    );
    prop_oneof![
        5 => pass.prop_map(Act::Pass),
        10 => acquire,
        6 => (who(), prop_oneof![6 => Just(0_u32), 1 => 1..4_u32])
            .prop_map(|(who, keep)| Act::Release { who, keep }),
        3 => (who(), 1_000..40_000_u64).prop_map(|(who, ttl)| Act::Renew { who, ttl }),
        3 => (who(), any::<bool>()).prop_map(|(who, bury)| Act::Leave { who, bury }),
        1 => Just(Act::Force),
        1 => Just(Act::Inspect),
        3 => (any::<u8>(), ttl()).prop_map(|(value, ttl)| Act::TheySet(value, ttl)),
        1 => (any::<u8>(), ttl()).prop_map(|(value, ttl)| Act::TheyOverwrite(value, ttl)),
        3 => Just(Act::TheyRelease),
        1 => Just(Act::Del),
        1 => Just(Act::Persist),
        1 => Just(Act::LoseToken),
    ]
}

/// Who has the lock, as far as the observer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Has {
    Ours(OwnerId, RequestId, Token),
    Theirs(Vec<u8>),
}

#[derive(Default)]
struct Play {
    now: u64,
    tick: u64,
    lock: LockState,
    /// Holder, and until when (ms; `None`: no end).
    has: Option<(Has, Option<u64>)>,
    newest: u64,
    /// The current request of each owner, and the token that it got.
    requests: BTreeMap<u64, (u64, Option<Token>)>,
    /// Until when each buried request is refused.
    buried: BTreeMap<RequestId, u64>,
    granted: BTreeSet<u64>,
    last_request: u64,
}

type Checked<T = ()> = Result<T, String>;

fn ensure(fine: bool, what: impl FnOnce() -> String) -> Checked {
    if fine { Ok(()) } else { Err(what()) }
}

impl Play {
    fn send(&mut self, op: &Op) -> Checked<Body> {
        self.tick = (self.tick + 1) % 1_000;
        let at_us = self.now * 1_000 + self.tick;
        let rules = Rules::default();
        let was_ours = matches!(self.lock.snapshot().value, Some(SimpleValue::Ours { .. }));
        let (answer, effects) = self
            .lock
            .apply(at_us, op, &rules, &Ears::default())
            .map_err(|error| error.to_string())?;
        ensure(answer.now_ms == self.now && !answer.more, || format!("{answer:?}"))?;
        // Waiters are notified exactly when the lock becomes free by one of our operations.
        let frees = matches!(answer.body, Body::Released | Body::Freed | Body::Forced { .. });
        let told: Vec<_> = effects.iter().map(|effect| &effect.channel).collect();
        // A holder of ours is notified before that if its lock was taken away by force.
        let taken_from = match &answer.body {
            Body::Forced { holder: Some(holder), .. } if was_ours => holder.client(),
            _ => None,
        };
        let inbox = taken_from.map(Channel::Inbox);
        let expected: Vec<_> = inbox.iter().chain(frees.then_some(&Channel::Base)).collect();
        ensure(told == expected, || format!("{told:?}"))?;
        Ok(answer.body)
    }

    /// A foreign client changes the string directly.
    fn meddle(&mut self, value: Option<SimpleValue>, until: Option<u64>) {
        let mut keys = self.lock.snapshot().clone();
        keys.value_expires = until.filter(|_| value.is_some());
        keys.value = value;
        self.lock = LockState::from_snapshot(keys);
    }

    fn expire(&mut self) {
        let over = |until: Option<u64>| until.is_some_and(|at| self.now > at);
        if self.has.as_ref().is_some_and(|(_, until)| over(*until)) {
            self.has = None;
        }
        self.buried.retain(|_, until| self.now <= *until);
    }

    fn act(&mut self, act: &Act, twice: bool) -> Checked {
        self.expire();
        match act {
            Act::Pass(ms) => self.now += ms,
            Act::TheySet(value, ttl) if self.has.is_none() => self.they_write(*value, *ttl),
            Act::TheyOverwrite(value, ttl) => self.they_write(*value, *ttl),
            Act::TheyRelease if !matches!(self.has, Some((Has::Theirs(_), _))) => {}
            Act::TheyRelease | Act::Del => {
                self.has = None;
                self.meddle(None, None);
            }
            Act::TheySet(..) => {}
            Act::Persist => {
                if let Some((_, until)) = &mut self.has {
                    *until = None;
                }
                let value = self.lock.snapshot().value.clone().filter(|_| self.has.is_some());
                self.meddle(value, None);
            }
            Act::LoseToken => {
                let mut keys = self.lock.snapshot().clone();
                (keys.token, keys.token_expires) = (None, None);
                self.lock = LockState::from_snapshot(keys);
            }
            act => {
                let Some(op) = self.op(act) else { return Ok(()) };
                for _ in 0..=u8::from(twice) {
                    let body = self.send(&op)?;
                    self.note(&op, &body).map_err(|what| format!("{op:?}, {body:?}: {what}"))?;
                    self.agree()?;
                }
            }
        }
        Ok(())
    }

    fn they_write(&mut self, value: u8, ttl: Option<u64>) {
        let bytes = vec![value; usize::from(value)];
        let until = ttl.map(|ms| self.now + ms);
        self.has = Some((Has::Theirs(bytes.clone()), until));
        self.meddle(Some(SimpleValue::Foreign(bytes.into())), until);
    }

    fn op(&mut self, act: &Act) -> Option<Op> {
        let kind = Kind::Simple;
        let owner = |who: u64| ours(who, 1);
        let known = |play: &Self, who: u64| play.requests.get(&who).copied();
        Some(match act {
            Act::Acquire { who, again, late, lease, mode } => {
                let present = known(self, *who).filter(|_| *again);
                let number = present.map_or_else(
                    || {
                        self.last_request += 1;
                        self.last_request
                    },
                    |(number, _)| number,
                );
                if present.is_none() {
                    self.requests.insert(*who, (number, None));
                }
                Op::Acquire(Acquire {
                    kind,
                    owner: owner(*who),
                    request: request(number),
                    lease_ms: *lease,
                    mode: *mode,
                    order: None,
                    not_after_ms: if *late { self.now - 1 } else { self.now },
                    sure: false,
                    shared_owner: *again,
                })
            }
            Act::Release { who, keep } => {
                let token = known(self, *who)?.1?;
                Op::Release { kind, owner: owner(*who), token, keep: *keep, change: 1 }
            }
            Act::Renew { who, ttl } => {
                let token = known(self, *who)?.1?;
                Op::Renew { kind, owner: owner(*who), token, ttl_ms: *ttl }
            }
            Act::Leave { who, bury } => {
                let (number, _) = known(self, *who)?;
                let request = request(number);
                Op::Leave { kind, owner: owner(*who), request, bury: *bury, shared_owner: false }
            }
            Act::Force => Op::Force { kind },
            _ => Op::Inspect { kind, limit: 5 },
        })
    }

    /// Compares a reply with what the observer knows, and learns from it.
    fn note(&mut self, op: &Op, body: &Body) -> Checked {
        let has = self.has.clone();
        match (op, body) {
            (Op::Acquire(a), body) => self.note_acquire(a, body, has),
            (Op::Release { owner, token, keep, .. }, body) => {
                let holds = self.is_held_by(owner, *token);
                let expected = match (holds, keep) {
                    (true, 0) => matches!(body, Body::Released),
                    (true, _) => *body == Body::StillHeld { count: 1 },
                    (false, _) => *body == Body::NotHeld { holder: self.shown() },
                };
                if holds && *keep == 0 {
                    self.has = None;
                }
                ensure(expected, || format!("but {has:?}"))
            }
            (Op::Renew { owner, token, ttl_ms, .. }, body) => {
                let holds = self.is_held_by(owner, *token);
                let expected =
                    if holds { Body::Renewed } else { Body::NotHeld { holder: self.shown() } };
                if let Some((_, until)) = self.has.as_mut().filter(|_| holds) {
                    *until = Some(self.now + ttl_ms);
                }
                ensure(*body == expected, || format!("but {has:?}"))
            }
            (Op::Leave { owner, request, bury, .. }, body) => {
                let got =
                    matches!(&has, Some((Has::Ours(by, of, _), _)) if by == owner && of == request);
                if got {
                    self.has = None;
                }
                if *bury {
                    self.buried.insert(*request, self.now + Rules::default().bury_ms);
                }
                ensure(*body == if got { Body::Freed } else { Body::Nothing }, || {
                    format!("but {has:?}")
                })
            }
            (Op::Force { .. }, Body::Forced { holder, .. }) => {
                let shown = self.shown();
                self.has = None;
                ensure(*holder == shown, || format!("but {has:?}"))
            }
            (_, Body::Inspected(seen)) => {
                let holder = seen.holder.as_ref().map(|held| held.owner.clone());
                let until = has.as_ref().and_then(|(_, until)| *until);
                let fits = holder == self.shown()
                    && seen.ttl_ms == until.map(|at| at - self.now)
                    && seen.queue_len == 0;
                ensure(fits, || format!("but {has:?}"))
            }
            _ => Err("another operation's reply".to_owned()),
        }
    }

    fn note_acquire(
        &mut self,
        a: &Acquire,
        body: &Body,
        has: Option<(Has, Option<u64>)>,
    ) -> Checked {
        if self.now > a.not_after_ms {
            return ensure(*body == Body::TooLate, || "too late".to_owned());
        }
        if self.buried.contains_key(&a.request) {
            return ensure(*body == Body::Buried, || "buried".to_owned());
        }
        let Some((holder, until)) = has else {
            let Body::Granted { token, ttl_ms } = body else { return Err("it is free".to_owned()) };
            // Two grants of one request: only after its first hold has ended.
            ensure(token.get() > self.newest, || format!("after {}", self.newest))?;
            ensure(*ttl_ms == a.lease_ms, || "another TTL".to_owned())?;
            ensure(self.granted.insert(token.get()), || "a token twice".to_owned())?;
            self.newest = token.get();
            self.learn(a, *token);
            let holds = Has::Ours(a.owner.clone(), a.request, *token);
            self.has = Some((holds, Some(self.now + ttl_ms)));
            return Ok(());
        };
        let left = |until: Option<u64>| until.map(|at| at - self.now);
        match holder {
            Has::Ours(owner, request, token) if owner == a.owner && request == a.request => {
                let until = until.or(Some(self.now + a.lease_ms));
                let ttl_ms = left(until).unwrap_or(0);
                self.learn(a, token);
                self.has = Some((Has::Ours(owner, request, token), until));
                ensure(*body == Body::Granted { token, ttl_ms }, || "it is its own".to_owned())
            }
            Has::Ours(owner, ..) if owner == a.owner => {
                ensure(*body == Body::HeldBySelf { count: 1 }, || "another request".to_owned())
            }
            Has::Ours(owner, request, token) => {
                let mended = || self.now + a.lease_ms.max(MENDED_HOLD_MS);
                let until = until.or_else(|| (a.mode == Mode::Wait).then(mended));
                let expected = Body::Taken { ttl_ms: left(until), foreign: false };
                self.has = Some((Has::Ours(owner, request, token), until));
                ensure(*body == expected, || "ours holds it".to_owned())
            }
            Has::Theirs(_) => {
                let expected = Body::Taken { ttl_ms: left(until), foreign: true };
                ensure(*body == expected, || "theirs, and their TTL".to_owned())
            }
        }
    }

    fn learn(&mut self, a: &Acquire, token: Token) {
        for who in 1..5 {
            if a.owner.client() == Some(client(who))
                && let Some(known) = self.requests.get_mut(&who)
            {
                known.1 = Some(token);
            }
        }
    }

    fn is_held_by(&self, owner: &OwnerId, token: Token) -> bool {
        matches!(&self.has, Some((Has::Ours(by, _, of), _)) if by == owner && *of == token)
    }

    fn shown(&self) -> Option<OwnerId> {
        self.has.as_ref().map(|(has, _)| match has {
            Has::Ours(owner, ..) => owner.clone(),
            Has::Theirs(bytes) => OwnerId::parse(bytes),
        })
    }

    /// The string is what the observer expects: nothing that belongs to others was changed.
    fn agree(&self) -> Checked {
        let keys = self.lock.snapshot();
        let found = keys.value.as_ref().map(|value| (value.to_bytes(), keys.value_expires));
        let known = self.has.as_ref().map(|(has, until)| {
            let bytes = match has {
                Has::Ours(owner, request, token) => {
                    format!("{owner}:{request}:{token}").into_bytes()
                }
                Has::Theirs(bytes) => bytes.clone(),
            };
            (bytes, *until)
        });
        ensure(found == known, || format!("stored {found:?}, expected {known:?}"))
    }
}

fn play(case: &[(Act, bool)]) -> Checked {
    let mut play = Play { now: T0, ..Play::default() };
    for (place, (act, twice)) in case.iter().enumerate() {
        play.act(act, *twice).map_err(|what| format!("act {place}: {what}"))?;
    }
    Ok(())
}

#[test]
fn random_sequences_keep_the_string_to_its_owner() {
    let strategy = prop::collection::vec((acts(), any::<bool>()), 1..ACTS_MAX);
    play_cases(CASES, &strategy, |acts| play(acts), |acts| format!("{acts:#?}"));
}

/// Fair and plain operations meet a string, and the other way round: they are refused and change
/// nothing.
#[test]
fn a_name_has_one_kind() {
    let acquire = |kind, who| Op::Acquire(Acquire { kind, ..wanted(&ours(who, 1), who, T0) });
    let (rules, ears) = (Rules::default(), Ears::default());
    for (held, others) in [
        (Kind::Simple, [Kind::Fair, Kind::Plain]),
        (Kind::Fair, [Kind::Simple, Kind::Simple]),
        (Kind::Plain, [Kind::Simple, Kind::Simple]),
    ] {
        let mut lock = LockState::default();
        lock.apply(T0 * 1_000, &acquire(held, 1), &rules, &ears).unwrap();
        let before = lock.clone();
        for kind in others {
            for op in [acquire(kind, 2), Op::Force { kind }, Op::Inspect { kind, limit: 1 }] {
                let error = lock.apply(T0 * 1_000, &op, &rules, &ears).unwrap_err();
                assert_eq!(error, fairlock_core::CoreError::WrongType, "{held:?}, {op:?}");
                assert_eq!(lock, before);
            }
        }
    }
}
