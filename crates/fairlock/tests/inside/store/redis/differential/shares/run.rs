//! One run: every step on the server and on the core, up to the first difference.

use super::super::super::{keys, reply};
use super::super::fixture::Fixture;
use super::super::run::{START_US, client};
use super::dump::{self, Dump, keys_of};
use super::step::{Fault, Plan, Step};
use fairlock_core::{
    Answer, Channel, ClientId, CoreError, Effect, Kind, LockState, Op, OwnerId, Payload, RequestId,
    Rules, Share,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a run has reached, so that a test can check that it covered everything.
pub(super) type Seen = BTreeMap<String, u64>;

pub(super) struct Run<'a> {
    pub(super) fixture: &'a mut Fixture,
    pub(super) kind: Kind,
    rules: Rules,
    pub(super) lock: LockState,
    burials: BTreeSet<RequestId>,
    /// The last order number of each owner.
    pub(super) orders: BTreeMap<OwnerId, u64>,
    seen: &'a mut Seen,
    /// Timeout keys of readers whose holds somebody took away, which end by themselves.
    strays: BTreeSet<Vec<u8>>,
    /// The server has no free memory while it carries out an operation.
    pub(super) pressed: bool,
    /// What ended until then may be gone: a server removes it when it likes, and its clock may be set back.
    latest_ms: u64,
}

/// Plays a plan on an empty server.
///
/// # Errors
/// The step at which both differ, and how.
pub(super) fn run(
    fixture: &mut Fixture,
    plan: &Plan,
    seen: &mut Seen,
) -> Result<(), (usize, String)> {
    fixture.reset(START_US);
    let mut run = Run::new(fixture, plan.kind, plan.rules.clone(), LockState::default(), seen);
    for (at, step) in plan.steps.iter().enumerate() {
        run.step(step).map_err(|story| (at, story))?;
    }
    Ok(())
}

/// What the server published, in the words of the core, and what it told Redisson's waiters.
pub(super) fn heard(fixture: &mut Fixture) -> (Vec<Effect>, Vec<String>) {
    let (mut effects, mut java) = (Vec::new(), Vec::new());
    for (channel, payload) in fixture.published() {
        if channel == "redisson_rwlock:{job}" {
            java.push(String::from_utf8(payload).expect("text"));
            continue;
        }
        let client =
            channel.strip_prefix(keys::INBOX_PREFIX).and_then(|id| ClientId::parse(id.as_bytes()));
        let client = client.unwrap_or_else(|| panic!("nobody listens to {channel}"));
        let mut hear = |payload| effects.push(Effect { channel: Channel::Inbox(client), payload });
        if let Some((grant, at_ms)) = reply::grant_message(&payload) {
            hear(Payload::Grant { grant, at_ms });
        } else if let Some((grants, at_ms)) = reply::cohort_message(&payload) {
            grants.into_iter().for_each(|grant| hear(Payload::Grant { grant, at_ms }));
        } else if let Some((owner, token)) = reply::forced_message(&payload) {
            let (of, number) = owner.parts().expect("an owner of ours is told");
            assert_eq!(of, client, "told in its own inbox");
            hear(Payload::Forced { number, token });
        } else if let Some(request) = reply::guests_message(&payload) {
            hear(Payload::Guests { request });
        } else {
            panic!("a message in no known form: {}", payload.escape_ascii());
        }
    }
    (effects, java)
}

/// As the scripts publish them: the grants of a client together.
fn by_client(effects: Vec<Effect>) -> Vec<Effect> {
    let is_grant = |effect: &Effect| matches!(effect.payload, Payload::Grant { .. });
    let (grants, mut all): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_grant);
    let mut channels = Vec::new();
    for grant in &grants {
        if !channels.contains(&grant.channel) {
            channels.push(grant.channel.clone());
        }
    }
    for channel in channels {
        all.extend(grants.iter().filter(|grant| grant.channel == channel).cloned());
    }
    all
}

impl<'a> Run<'a> {
    /// Continues from `lock`, which the server already has.
    pub(super) fn new(
        fixture: &'a mut Fixture,
        kind: Kind,
        rules: Rules,
        lock: LockState,
        seen: &'a mut Seen,
    ) -> Self {
        let (burials, orders, strays) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let (pressed, latest_ms) = (false, 0);
        Self { fixture, kind, rules, lock, burials, orders, seen, strays, pressed, latest_ms }
    }

    pub(super) fn dump(&mut self) -> Dump {
        let now_ms = self.fixture.now_us() / 1_000;
        self.latest_ms = self.latest_ms.max(now_ms);
        let (raw, keys) = (&mut self.fixture.raw, &self.fixture.keys);
        dump::read(raw, keys, self.kind, (now_ms, self.latest_ms), &self.burials)
    }

    /// Copies what the server has.
    pub(super) fn adopt(&mut self) {
        self.lock = self.dump().lock(self.kind);
    }

    /// Begins anew on an empty server: what a call with a key of a wrong type has left may be no lock any more.
    pub(super) fn forget(&mut self) {
        self.fixture.raw.call(&["FLUSHALL"]);
        self.adopt();
        (self.strays, self.burials) = (BTreeSet::new(), BTreeSet::new());
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Time(by) => {
                if *by < 0 {
                    // What has expired is gone on both sides.
                    self.dump();
                }
                let now_us = self.fixture.now_us().checked_add_signed(*by).expect("within reason");
                self.fixture.set_now(now_us);
                let is_gone = |end: u64| dump::kept_until(end) <= now_us / 1_000;
                let last = self
                    .lock
                    .shares()
                    .and_then(|shares| shares.holds().values().map(|hold| hold.ends_ms).max());
                if *by < 0 || last.is_some_and(is_gone) {
                    self.adopt();
                }
                if *by < 0 {
                    // A timeout key lives again that nobody has looked at since it ended.
                    let left = self.dump().left;
                    self.strays.extend(left);
                }
            }
            Step::Inbox { client: number, on } => self.fixture.inbox(client(*number), *on),
            Step::Guests(on) => self.fixture.guests(*on),
            Step::Fault(fault) => {
                let [lock, _, _, _, order, state, beats] = keys_of(&self.fixture.keys, self.kind);
                let key = match fault {
                    Fault::Lock => lock,
                    Fault::Order => order,
                    Fault::State => state,
                    Fault::Beats => beats,
                };
                self.fixture.raw.call(&[b"DEL".to_vec(), key]);
                self.adopt();
                let left = self.dump().left;
                self.strays.extend(left);
                self.count("fault");
            }
            operation => {
                let op = self.resolve(operation);
                self.both(&op)?;
            }
        }
        Ok(())
    }

    fn mode(&mut self) -> Option<String> {
        let mode = self.fixture.raw.call(&["HGET", "job", "mode"]);
        (!mode.is_nil()).then(|| mode.text().to_owned())
    }

    /// Carries out `op` on server and core, and compares everything observable.
    ///
    /// # Errors
    /// Both sides if they differ.
    pub(super) fn both(&mut self, op: &Op) -> Result<Option<Answer>, String> {
        if let Op::Leave { request, bury: true, .. } = op {
            self.burials.insert(*request);
        }
        let before = (self.lock.clone(), self.mode());
        let untouched = self.pressed.then(|| self.dump());
        let found = self.ask(op);
        let (messages, java) = heard(self.fixture);
        let dump = self.dump();
        if let Some(untouched) = untouched
            && found.as_ref().is_err_and(|error| error.contains("OOM"))
        {
            let is_silent = messages.is_empty() && java.is_empty() && dump == untouched;
            if !matches!(op, Op::AcquireShare(_)) || !is_silent {
                return Err(format!("refused: {op:?}\n{messages:?}\n{untouched:#?}\n{dump:#?}"));
            }
            self.count("refused: memory");
            return Ok(None);
        }
        let (now_us, world) = (self.fixture.now_us(), self.fixture.present.clone());
        let (lock, rules) = (&mut self.lock, &self.rules);
        let expected = catch_unwind(AssertUnwindSafe(|| lock.apply(now_us, op, rules, &world)));
        let context = |what: &str, core: &dyn Debug, lua: &dyn Debug| {
            format!(
                "{what}: {op:?}\nat {now_us} us, {world:?}\nbefore {before:#?}\ncore {core:#?}\nlua {lua:#?}\n{dump:#?}"
            )
        };
        let Ok(expected) = expected else { return Err(context("the core panics", &"", &found)) };
        let answer = match (expected, found) {
            (Ok((answer, effects)), Ok(found)) => {
                if answer != found {
                    return Err(context("the answers differ", &answer, &found));
                }
                let effects = by_client(effects);
                if effects != messages {
                    return Err(context("the messages differ", &effects, &messages));
                }
                Some((answer, effects))
            }
            (Err(CoreError::TokenExhausted), Err(found)) if found.contains("FAIRLOCK_TOKEN") => {
                None
            }
            (expected, found) => return Err(context("one refuses", &expected, &found)),
        };
        let stray = dump.left.iter().find(|key| !self.strays.contains(*key));
        if !dump.wrong.is_empty() || stray.is_some() {
            return Err(context("the keys are wrong", &stray, &dump.wrong));
        }
        let is_invited = messages.iter().any(|it| matches!(it.payload, Payload::Guests { .. }));
        let wanted: &[&str] = match (before.1.as_deref(), dump.mode.as_deref()) {
            _ if is_invited => &["1"],
            (Some("write"), None | Some("read")) => &["1"],
            (Some("read"), None) => &["0"],
            _ => &[],
        };
        if java != wanted {
            return Err(context("Java hears something else", &wanted, &java));
        }
        let shares = self.lock.shares().expect("an operation on shares");
        let lasting = |at: &u64| *at >= now_us / 1_000;
        let holds: BTreeMap<_, _> = shares
            .holds()
            .iter()
            .filter(|(_, hold)| lasting(&hold.ends_ms))
            .map(|(o, h)| (o.clone(), *h))
            .collect();
        // The record of one without a place is forgotten sooner or later.
        let standing = |(owner, share): (&OwnerId, &Share)| {
            dump.snapshot.order.contains_key(owner).then(|| (owner.clone(), *share))
        };
        let wants: BTreeMap<_, _> = shares.wants().iter().filter_map(standing).collect();
        let written: BTreeMap<_, _> = dump.wants.iter().filter_map(standing).collect();
        if *self.lock.snapshot() != dump.snapshot || holds != dump.holds || wants != written {
            return Err(context("the keys differ", &(self.lock.snapshot(), shares), &answer));
        }
        let Some((answer, effects)) = answer else { return Ok(None) };
        self.note(op, &answer, &effects);
        Ok(Some(answer))
    }

    /// Carries out `op` on the server.
    pub(super) fn ask(&mut self, op: &Op) -> Result<Answer, String> {
        if self.pressed {
            self.fixture.raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
        }
        let found = self.fixture.call(&self.rules, op);
        if self.pressed {
            self.fixture.raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
        }
        found
    }

    fn note(&mut self, op: &Op, answer: &Answer, effects: &[Effect]) {
        self.orders.extend(self.lock.snapshot().order.iter().map(|(o, n)| (o.clone(), *n)));
        let text = format!("{:?}", answer.body);
        let body = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
        self.count(&format!("answer: {body}"));
        let grants =
            effects.iter().filter(|it| matches!(it.payload, Payload::Grant { .. })).count();
        let record = &self.lock.snapshot().record;
        for (what, met) in [
            ("answer: MORE", answer.more),
            ("answer: removed", answer.removed > 0),
            ("answer: other limit", answer.other_limit),
            (
                "answer: downgraded",
                matches!(op.bare(), Op::Downgrade { .. }) && body == "StillHeld",
            ),
            ("answer: granted in a beat", text.contains("Fates") && text.contains("Granted")),
            ("message: grant", grants == 1),
            ("message: cohort", grants > 1),
            ("message: forced", text.contains("Forced") && effects.len() > grants),
            (
                "message: guests",
                effects.iter().any(|it| matches!(it.payload, Payload::Guests { .. })),
            ),
            ("state: amnesty", record.amnesty.is_some()),
            ("state: gather", record.gather.is_some()),
            ("state: guest", record.guest.is_some()),
            ("state: removed", record.removed.is_some()),
        ] {
            if met {
                self.count(what);
            }
        }
    }

    pub(super) fn count(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }
}
