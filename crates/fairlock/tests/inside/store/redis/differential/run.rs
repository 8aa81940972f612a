//! One run: every step on the server and on the core, up to the first difference.

use super::dump::Dump;
use super::fixture::Fixture;
use super::step::{Plan, Step};
use fairlock_core::{
    Answer, ClientId, CoreError, Effect, Leader, LockState, Op, OwnerId, RequestId, Rules, Snapshot,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The time at which every run begins: 2033, as a number with many trailing zeros, which some
/// servers write with an exponent.
pub(super) const START_US: u64 = 2_000_000_000_000_000;

/// What a run has reached, so that a test can check that it covered everything.
pub(super) type Seen = BTreeMap<String, u64>;

/// The first step where the two sides differ.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub(super) at: usize,
    pub(super) story: String,
}

/// What the server did for an operation.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) result: Result<Answer, String>,
    pub(super) heard: Vec<Effect>,
    pub(super) dump: Dump,
}

pub(super) struct Run<'a> {
    pub(super) fixture: &'a mut Fixture,
    rules: Rules,
    pub(super) core: LockState,
    /// The token key does not contain a number: the core cannot predict what happens.
    garbage: bool,
    burials: BTreeSet<RequestId>,
    /// The last order number of each owner.
    pub(super) orders: BTreeMap<OwnerId, u64>,
    /// All tokens granted.
    pub(super) tokens: Vec<u64>,
    seen: &'a mut Seen,
}

/// Plays a plan on an empty server.
///
/// # Errors
/// The first difference.
pub(super) fn run(fixture: &mut Fixture, plan: &Plan, seen: &mut Seen) -> Result<(), Mismatch> {
    fixture.reset(START_US);
    let mut run = Run::new(fixture, plan.rules.clone(), Snapshot::default(), seen);
    for (at, step) in plan.steps.iter().enumerate() {
        run.step(step).map_err(|story| Mismatch { at, story })?;
    }
    Ok(())
}

pub(super) fn client(number: u64) -> ClientId {
    ClientId::from_random(u128::from(number + 1) << 96)
}

/// Owner `number`; owners are spread over the clients in turn.
pub(super) fn owner(number: u64) -> OwnerId {
    let client = client(number % super::step::CLIENTS);
    OwnerId::ours(client, 1 + number / super::step::CLIENTS).expect("a legal number")
}

pub(super) fn request(owner: u64, number: u64) -> RequestId {
    RequestId::from_random(u128::from(owner) << 64 | u128::from(number))
}

impl<'a> Run<'a> {
    /// Continues from `start`, which the server already has.
    pub(super) fn new(
        fixture: &'a mut Fixture,
        rules: Rules,
        start: Snapshot,
        seen: &'a mut Seen,
    ) -> Self {
        #[cfg(feature = "sqlite")]
        fixture.host.set(fixture.now_us(), &start, None);
        Self {
            fixture,
            rules,
            core: LockState::from_snapshot(start),
            garbage: false,
            burials: BTreeSet::new(),
            orders: BTreeMap::new(),
            tokens: Vec::new(),
            seen,
        }
    }

    /// Calls the script of `op` without comparing anything.
    pub(super) fn call(&mut self, op: &Op) -> Result<Answer, String> {
        if let Op::Leave { request, bury: true, .. } = op {
            self.burials.insert(*request);
        }
        self.fixture.call(&self.rules, op)
    }

    /// Whether the token key does not contain a number, so that the core cannot predict what
    /// happens.
    pub(super) fn is_garbage(&self) -> bool {
        self.garbage
    }

    /// All stored data.
    pub(super) fn ask_nothing(&mut self) -> Dump {
        self.fixture.dump(&self.burials)
    }

    pub(super) fn core(&self) -> &LockState {
        &self.core
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Time(by) => {
                if *by < 0 {
                    // Expired content must not come back to life on one side only: the server may
                    // or may not have dropped it already.
                    self.adopt();
                }
                let now = self.fixture.now_us().checked_add_signed(*by).expect("within reason");
                self.fixture.set_now(now.max(1_000_000_000_000));
            }
            Step::RoundTime(unit) => {
                let now = self.fixture.now_us();
                self.fixture.set_now((now / unit + 1) * unit);
            }
            Step::Inbox { client: number, on } => self.fixture.inbox(client(*number), *on),
            Step::JavaListens { waiter, on } => {
                let owner = self.java_owner(*waiter);
                self.fixture.listens(&owner, *on);
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

    /// Carries out `op` on server and core, and compares everything observable.
    ///
    /// # Errors
    /// Both sides if they differ.
    pub(super) fn both(&mut self, op: &Op) -> Result<Option<Answer>, String> {
        if self.garbage {
            return self.refused(op).map(|()| None);
        }
        let found = self.ask(op);
        self.judge(op, found)
    }

    /// Carries out `op` on the server and collects everything observable.
    pub(super) fn ask(&mut self, op: &Op) -> Found {
        let result = self.call(op);
        let heard = self.fixture.messages();
        let dump = self.fixture.dump(&self.burials);
        Found { result, heard, dump }
    }

    /// Carries out `op` on the core and compares that with what the server did.
    ///
    /// # Errors
    /// Both sides if they differ.
    pub(super) fn judge(&mut self, op: &Op, found: Found) -> Result<Option<Answer>, String> {
        let now_us = self.fixture.now_us();
        let world = self.fixture.present.clone();
        let before = self.core.snapshot().clone();
        let core = &mut self.core;
        let rules = &self.rules;
        let expected = catch_unwind(AssertUnwindSafe(|| core.apply(now_us, op, rules, &world)));
        let expected = expected.map_err(|panic| {
            format!("{op:?}\nat {now_us} us\nbefore {before:#?}\nthe core panics: {}", says(&panic))
        })?;
        #[cfg(feature = "sqlite")]
        self.fixture
            .host
            .check(now_us, op, rules, &world, &expected, core.snapshot())
            .map_err(|story| format!("{story}\nat {now_us} us\nbefore {before:#?}"))?;
        let Found { result, heard, dump } = found;

        let context = |what: &str, core: &dyn Debug, lua: &dyn Debug| {
            format!(
                "{what}: {op:?}\nat {now_us} us, {world:?}\nbefore {before:#?}\n\
                 core {core:#?}\nlua {lua:#?}"
            )
        };
        let answer = match (expected, result) {
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
            (Err(CoreError::WrongType), Err(found)) if found.contains("WRONGTYPE") => {
                if !heard.is_empty() {
                    return Err(context("messages after a refusal", &"", &heard));
                }
                self.count("refused: wrong type");
                None
            }
            (Err(CoreError::NotALock(what)), Err(found))
                if found.contains("FAIRLOCK_KIND") && found.ends_with(&what.to_string()) =>
            {
                if !heard.is_empty() {
                    return Err(context("messages after a refusal", &"", &heard));
                }
                self.count("refused: no lock");
                None
            }
            (expected, found) => return Err(context("one refuses", &expected, &found)),
        };
        let lasts = |leader: &&Leader| now_us / 1_000 <= leader.expires;
        let leader = self.core.leader().filter(lasts).cloned();
        if leader != dump.leader {
            return Err(context("the announcements differ", &leader, &dump.leader));
        }
        if *self.core.snapshot() != dump.snapshot || dump.garbage.is_some() {
            return Err(context(
                &format!("the keys differ after the same answer\n{answer:#?}"),
                self.core.snapshot(),
                &dump,
            ));
        }
        Ok(answer)
    }

    /// With a token that is not a number, the call is refused and nothing changes.
    fn refused(&mut self, op: &Op) -> Result<(), String> {
        let before = self.fixture.dump(&self.burials);
        if before.garbage.is_none() {
            // It has expired in the meantime.
            self.adopt();
            return self.both(op).map(drop);
        }
        let Found { result: found, heard, dump: after } = self.ask(op);
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
        if answer.removed > 0 {
            self.count("answer: removed");
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

    pub(super) fn count(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    /// Copies what others did to the keys into the core's state.
    pub(super) fn adopt(&mut self) {
        self.fixture.messages();
        let dump = self.fixture.dump(&self.burials);
        self.garbage = dump.garbage.is_some();
        #[cfg(feature = "sqlite")]
        self.fixture.host.set(self.fixture.now_us(), &dump.snapshot, dump.leader.as_ref());
        self.core = LockState::from_snapshot(dump.snapshot);
        self.core.set_leader(dump.leader);
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
