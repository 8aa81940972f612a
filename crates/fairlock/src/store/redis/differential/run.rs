//! One run: every step against the server and against the core, and the first difference.

use super::rig::Rig;
use super::step::{End, Fault, JavaAct, Member, Named, Place, Plan, Step, Who};
use fairlock_core::{
    Acquire, Answer, ClientId, CoreError, Effect, LockState, Op, OwnerId, RequestId, Rules,
    Snapshot, Token,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// When every run begins: 2033, and a number that ends in many zeros, which some servers write
/// with an exponent.
pub(super) const START_US: u64 = 2_000_000_000_000_000;

/// What a run has seen, so that a test can tell that it saw everything.
pub(super) type Seen = BTreeMap<String, u64>;

/// The first step where the two sides differ.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub(super) at: usize,
    pub(super) story: String,
}

/// A run under way.
pub(super) struct Run<'a> {
    rig: &'a mut Rig,
    rules: Rules,
    core: LockState,
    /// The token key holds no number: the core cannot say what happens.
    garbage: bool,
    burials: BTreeSet<RequestId>,
    orders: BTreeMap<OwnerId, u64>,
    tokens: Vec<u64>,
    seen: &'a mut Seen,
}

/// Carries out a plan on an empty server.
///
/// # Errors
/// The first difference.
pub(super) fn run(rig: &mut Rig, plan: &Plan, seen: &mut Seen) -> Result<(), Mismatch> {
    rig.reset(START_US);
    let mut run = Run::new(rig, plan.rules.clone(), Snapshot::default(), seen);
    for (at, step) in plan.steps.iter().enumerate() {
        run.step(step).map_err(|story| Mismatch { at, story })?;
    }
    Ok(())
}

pub(super) fn client(number: u64) -> ClientId {
    ClientId::from_random(u128::from(number + 1) << 96)
}

/// Owner `number`: the clients take turns.
pub(super) fn owner(number: u64) -> OwnerId {
    let client = client(number % super::step::CLIENTS);
    OwnerId::ours(client, 1 + number / super::step::CLIENTS).expect("a legal number")
}

pub(super) fn request(owner: u64, number: u64) -> RequestId {
    RequestId::from_random(u128::from(owner) << 64 | u128::from(number))
}

fn number_of(id: &OwnerId) -> u64 {
    (0..super::step::OWNERS).find(|number| owner(*number) == *id).unwrap_or(0)
}

impl<'a> Run<'a> {
    /// Goes on from `start`, which the server already has.
    pub(super) fn new(rig: &'a mut Rig, rules: Rules, start: Snapshot, seen: &'a mut Seen) -> Self {
        Self {
            rig,
            rules,
            core: LockState::from_snapshot(start),
            garbage: false,
            burials: BTreeSet::new(),
            orders: BTreeMap::new(),
            tokens: Vec::new(),
            seen,
        }
    }

    pub(super) fn core(&self) -> &LockState {
        &self.core
    }

    pub(super) fn rig(&mut self) -> &mut Rig {
        self.rig
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Time(by) => {
                let now = self.rig.now_us().checked_add_signed(*by).expect("within reason");
                self.rig.set_now(now.max(1_000_000_000_000));
            }
            Step::RoundTime(unit) => {
                let now = self.rig.now_us();
                self.rig.set_now((now / unit + 1) * unit);
            }
            Step::Inbox { client: number, on } => self.rig.inbox(client(*number), *on),
            Step::JavaListens { waiter, on } => {
                let owner = self.java_owner(*waiter);
                self.rig.listens(&owner, *on);
            }
            Step::Java { waiter, act } => {
                self.java(*waiter, *act);
                self.adopt();
            }
            Step::Meddle(fault) => {
                self.meddle(*fault);
                self.adopt();
            }
            operation => {
                let op = self.resolve(operation);
                self.both(&op)?;
            }
        }
        Ok(())
    }

    /// Lets server and core do `op`, and compares all that can be seen of it.
    ///
    /// # Errors
    /// Both sides, where they differ.
    pub(super) fn both(&mut self, op: &Op) -> Result<Option<Answer>, String> {
        if let Op::Leave { request, bury: true, .. } = op {
            self.burials.insert(*request);
        }
        if self.garbage {
            return self.refused(op).map(|()| None);
        }
        let now_us = self.rig.now_us();
        let world = self.rig.present.clone();
        let before = self.core.snapshot().clone();
        let core = &mut self.core;
        let rules = &self.rules;
        let expected = catch_unwind(AssertUnwindSafe(|| core.apply(now_us, op, rules, &world)));
        let expected = expected.map_err(|panic| {
            format!("{op:?}\nat {now_us} us\nbefore {before:#?}\nthe core panics: {}", says(&panic))
        })?;

        let found = self.rig.call(&self.rules, op);
        let heard = self.rig.messages();
        let dump = self.rig.dump(&self.burials);

        let context = |what: &str, core: &dyn Debug, lua: &dyn Debug| {
            format!(
                "{what}: {op:?}\nat {now_us} us, {world:?}\nbefore {before:#?}\n\
                 core {core:#?}\nlua {lua:#?}"
            )
        };
        let answer = match (expected, found) {
            (Ok((answer, effects)), Ok(found)) => {
                if answer != found {
                    return Err(context("the answers differ", &answer, &found));
                }
                if effects != heard {
                    return Err(context("the messages differ", &effects, &heard));
                }
                self.note(&answer, &effects);
                Some(answer)
            }
            (Err(CoreError::TokenExhausted), Err(found)) if found.contains("FAIRLOCK_TOKEN") => {
                if !heard.is_empty() {
                    return Err(context("messages after a refusal", &"", &heard));
                }
                self.count("refused: token");
                None
            }
            (expected, found) => return Err(context("one refuses", &expected, &found)),
        };
        if *self.core.snapshot() != dump.snapshot || dump.garbage.is_some() {
            return Err(context(
                &format!("the keys differ after the same answer\n{answer:#?}"),
                self.core.snapshot(),
                &dump,
            ));
        }
        Ok(answer)
    }

    /// A token that is no number: the call is refused and nothing changes.
    fn refused(&mut self, op: &Op) -> Result<(), String> {
        let before = self.rig.dump(&self.burials);
        if before.garbage.is_none() {
            // It has expired meanwhile.
            self.adopt();
            return self.both(op).map(drop);
        }
        let found = self.rig.call(&self.rules, op);
        let heard = self.rig.messages();
        let after = self.rig.dump(&self.burials);
        let named = found.as_ref().is_err_and(|error| error.contains("FAIRLOCK_TOKEN"));
        if !named || before != after || !heard.is_empty() {
            return Err(format!(
                "a token that is no number: {op:?}\n{found:?}\n{heard:?}\nbefore {before:#?}\nafter {after:#?}"
            ));
        }
        self.count("refused: garbage");
        Ok(())
    }

    fn note(&mut self, answer: &Answer, effects: &[Effect]) {
        if let fairlock_core::Body::Granted { token, .. } = &answer.body {
            self.tokens.push(token.get());
        }
        for effect in effects {
            if let fairlock_core::Payload::Grant { grant, .. } = &effect.payload {
                self.tokens.push(grant.token.get());
            }
            self.count(&format!("message: {}", first_word(&effect.channel)));
        }
        self.orders.extend(self.core.snapshot().order.iter().map(|(o, n)| (o.clone(), *n)));
        if answer.more {
            self.count("answer: MORE");
        }
        let keys = self.core.snapshot();
        let record = &keys.record;
        let foreign_head = keys.queue.front().is_some_and(|head| !head.is_ours());
        let watched = record.watch.as_ref().map(|watch| watch.id.is_ours());
        let handed_on =
            effects.iter().any(|e| matches!(e.channel, fairlock_core::Channel::Inbox(_)));
        for (what, seen) in [
            ("state: amnesty", record.amnesty.is_some()),
            ("state: gather", record.gather.is_some()),
            ("state: removed", record.removed.is_some()),
            ("state: foreign head watched", watched == Some(false)),
            ("state: entry without record watched", watched == Some(true)),
            ("state: foreign head passed over", foreign_head && handed_on),
        ] {
            if seen {
                self.count(what);
            }
        }
        self.count(&format!("answer: {}", first_word(&answer.body)));
    }

    fn count(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    /// What others did to the keys becomes the core's state.
    pub(super) fn adopt(&mut self) {
        self.rig.messages();
        let dump = self.rig.dump(&self.burials);
        self.garbage = dump.garbage.is_some();
        self.core = LockState::from_snapshot(dump.snapshot);
    }

    fn who(&self, who: Who) -> OwnerId {
        let holder = self.core.snapshot().hold.keys().next();
        match who {
            Who::Owner(number) => owner(number),
            Who::Holder => {
                holder.filter(|holder| holder.is_ours()).cloned().unwrap_or_else(|| owner(0))
            }
        }
    }

    fn token(&self, named: Named) -> Token {
        let last = self.core.snapshot().token.unwrap_or(0);
        let number = match named {
            Named::Last => last,
            Named::Earlier => *self.tokens.iter().rev().find(|t| **t < last).unwrap_or(&1),
            Named::Later => last + 5,
        };
        Token::new(number).unwrap_or_else(|| Token::new(1).expect("1 is a token"))
    }

    fn resolve(&self, step: &Step) -> Op {
        match step {
            Step::Acquire { kind, owner: who, request: number, lease_ms, mode, .. } => {
                let Step::Acquire { place, late, sure, shared, .. } = step else { unreachable!() };
                let now_ms = self.rig.now_us() / 1_000;
                let id = owner(*who);
                let order = match place {
                    Place::New => None,
                    Place::Old => self.orders.get(&id).copied(),
                    Place::Ago(us) => Some(self.rig.now_us() - us),
                };
                Op::Acquire(Acquire {
                    kind: *kind,
                    owner: id,
                    request: request(*who, *number),
                    lease_ms: *lease_ms,
                    mode: *mode,
                    order,
                    not_after_ms: if *late { now_ms - 1 } else { now_ms },
                    sure: *sure,
                    shared_owner: *shared,
                })
            }
            Step::Reenter { who, token, count, change } => Op::Reenter {
                owner: self.who(*who),
                token: self.token(*token),
                count: *count,
                change: *change,
            },
            Step::Release { kind, who, token, keep, change } => Op::Release {
                kind: *kind,
                owner: self.who(*who),
                token: self.token(*token),
                keep: *keep,
                change: *change,
            },
            Step::Renew { who, token, ttl_ms } => {
                Op::Renew { owner: self.who(*who), token: self.token(*token), ttl_ms: *ttl_ms }
            }
            Step::Leave { kind, who, request: number, bury, shared } => {
                let owner = self.who(*who);
                Op::Leave {
                    kind: *kind,
                    request: request(number_of(&owner), *number),
                    owner,
                    bury: *bury,
                    shared_owner: *shared,
                }
            }
            Step::Beat { client: number, waiters } => Op::Beat {
                client: client(*number),
                waiters: waiters.iter().map(|number| owner(*number)).collect(),
            },
            Step::Nudge => Op::Nudge,
            Step::Force => Op::Force,
            Step::Inspect { limit } => Op::Inspect { limit: *limit },
            other => unreachable!("{other:?} is no operation"),
        }
    }

    pub(super) fn java_owner(&self, waiter: u64) -> OwnerId {
        let java = &self.rig.java[waiter as usize % 2];
        OwnerId::parse(java.owner(1 + waiter as i64 / 2).as_bytes())
    }

    pub(super) fn java(&mut self, waiter: u64, act: JavaAct) {
        let java = &mut self.rig.java[waiter as usize % 2];
        let (lock, thread) = (super::rig::NAME, 1 + waiter as i64 / 2);
        match act {
            JavaAct::Acquire { wait_ms, lease_ms } => {
                java.acquire(lock, thread, wait_ms, lease_ms);
            }
            JavaAct::Try => {
                java.try_acquire(lock, thread, 30_000);
            }
            JavaAct::Unlock => {
                java.unlock(lock, thread);
            }
            JavaAct::Leave { wait_ms } => java.leave(lock, thread, wait_ms),
            JavaAct::Force => {
                java.force_unlock(lock);
            }
            JavaAct::Renew => {
                java.renew(lock, thread);
            }
        }
        self.count("java");
    }

    fn member(&self, member: Member) -> Vec<u8> {
        match member {
            Member::Ours(number) => owner(number).to_bytes(),
            Member::Java(waiter) => self.java_owner(waiter).to_bytes(),
            Member::Odd => b"an odd\n one:".to_vec(),
        }
    }

    fn meddle(&mut self, fault: Fault) {
        let [lock, queue, scores, token, order, state, beats] = self.rig.keys.all();
        let key = |at: usize| self.rig.keys.all()[at].clone();
        let now_us = self.rig.now_us();
        let now_ms = now_us / 1_000;
        let text = |number: i64| number.to_string().into_bytes();
        let push = |end: End| match end {
            End::Head => b"LPUSH".to_vec(),
            End::Tail => b"RPUSH".to_vec(),
        };
        let word = |word: &str| word.as_bytes().to_vec();
        let last = self.core.snapshot().token.unwrap_or(now_us);
        let holder = self.core.snapshot().hold.keys().next().map(OwnerId::to_bytes);
        let commands: Vec<Vec<Vec<u8>>> = match fault {
            Fault::Delete(at) => vec![vec![word("DEL"), key(at)]],
            Fault::Persist(at) => vec![vec![word("PERSIST"), key(at)]],
            Fault::ShortenTo(at, ms) => {
                vec![vec![word("PEXPIRE"), key(at), text(ms as i64)]]
            }
            Fault::ListTwice(member, end) => {
                let id = self.member(member);
                let score = text(now_ms as i64 + 5_000);
                vec![
                    vec![push(end), queue.clone(), id.clone()],
                    vec![word("RPUSH"), queue, id.clone()],
                    vec![word("ZADD"), scores, score, id],
                ]
            }
            Fault::ListOnly(member, end) => {
                let id = self.member(member);
                vec![vec![word("ZREM"), scores, id.clone()], vec![push(end), queue, id]]
            }
            Fault::ScoreOnly(member) => {
                let id = self.member(member);
                vec![
                    vec![word("LREM"), queue, text(0), id.clone()],
                    vec![word("ZADD"), scores, text(now_ms as i64 + 60_000), id],
                ]
            }
            Fault::ScoreAt(member, ms) => {
                let at = text(now_ms as i64 + ms);
                vec![vec![word("ZADD"), scores, word("XX"), at, self.member(member)]]
            }
            Fault::OrderOnly(number) => {
                vec![vec![word("ZADD"), order, text(now_us as i64 - 7), owner(number).to_bytes()]]
            }
            Fault::OrderGone(number) => vec![vec![word("ZREM"), order, owner(number).to_bytes()]],
            Fault::RecordGone(number) => vec![vec![word("HDEL"), state, owner(number).to_bytes()]],
            Fault::BeatAt(number, ms) => {
                let id = client(number).to_string().into_bytes();
                vec![vec![word("ZADD"), beats, text(now_ms as i64 + ms), id]]
            }
            Fault::HolderQueued => match holder {
                None => vec![],
                Some(id) => vec![
                    vec![word("ZADD"), scores, text(now_ms as i64 + 60_000), id.clone()],
                    vec![word("RPUSH"), queue, id],
                ],
            },
            Fault::Crowd(size) => (0..size)
                .rev()
                .flat_map(|number| {
                    let gone = client(9);
                    let id = OwnerId::ours(gone, 1 + number).expect("a legal number").to_bytes();
                    let record = format!("{} 30000 0", request(9, number)).into_bytes();
                    let at = now_us as i64 - 1_000_000_000 + number as i64;
                    [
                        vec![word("LPUSH"), queue.clone(), id.clone()],
                        vec![
                            word("ZADD"),
                            scores.clone(),
                            text(now_ms as i64 + 60_000),
                            id.clone(),
                        ],
                        vec![word("ZADD"), order.clone(), text(at), id.clone()],
                        vec![word("HSET"), state.clone(), id, record],
                    ]
                })
                .collect(),
            Fault::Count(count) => match holder {
                None => vec![],
                Some(id) => vec![vec![word("HSET"), lock, id, text(count)]],
            },
            Fault::TokenBack(by) => {
                let back = last.saturating_sub(by).max(1);
                vec![vec![word("SET"), token, text(back as i64)]]
            }
            Fault::TokenAhead(by) => vec![vec![word("SET"), token, text((last + by) as i64)]],
            Fault::TokenIs(value) => vec![vec![word("SET"), token, word(value)]],
        };
        for command in commands {
            self.rig.raw.call(&command);
        }
        self.count("fault");
    }
}

fn first_word(value: &dyn Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned()
}

fn says(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without a word".to_owned())
}
