//! Random sequences: several clients and owners, fair and plain, every operation sometimes sent
//! twice, time that creeps, leaps and goes back, Java with wrong clocks, keys that get lost. An
//! [`Oracle`], kept from replies alone, decides what is right. At the end the faults stop, and
//! every live waiter must be served.
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use crate::java::{self, Clocks};
use crate::oracle::Oracle;
use crate::support::{Ears, client, java as java_owner, ours, play_cases, request};
use fairlock_core::{
    Acquire, Body, Grant, Kind, LockState, Mode, Op, OwnerId, Payload, Rules, Snapshot, Token,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const CASES: u32 = 2_000;
/// On average; together with [`CASES`] 100 000 operations.
const ACTS: usize = 50;
const T0: u64 = 1_760_000_000_000;

/// The worlds in which a case may be played, each wilder than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum World {
    Calm,
    Java,
    Faults,
}

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Back(u64),
    Acquire { who: (u64, u64), kind: Kind, mode: Mode, lease: u64, again: bool, sure: bool },
    Release { who: (u64, u64), keep: u32 },
    Reenter { who: (u64, u64) },
    Renew { who: (u64, u64), ttl: u64 },
    Leave { who: (u64, u64), bury: bool },
    Beat(u64),
    Nudge,
    Force,
    Inspect,
    Place((u64, u64)),
    Deaf(u64, bool),
    Java(u64, JavaAct, i64),
    Lose(Key),
}

#[derive(Clone, Copy, Debug)]
enum JavaAct {
    Acquire,
    Try,
    Fenced,
    Leave(i64),
    Unlock,
    Force,
    Listen(bool),
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Hold,
    Token,
    Queue,
    Scores,
    Order,
    State,
    Beats,
    Buried,
    Ttls,
    Duplicate,
    OneScore,
    OneMember,
}

#[derive(Clone, Debug)]
struct Case {
    world: World,
    acts: Vec<(Act, bool)>,
    leap: bool,
}

fn who() -> impl Strategy<Value = (u64, u64)> {
    (1..5_u64, 1..3_u64)
}

fn acts(world: World) -> BoxedStrategy<Act> {
    let pass = prop_oneof![
        6 => 0..900_u64,
        4 => 900..2_100_u64,
        1 => 2_100..7_000_u64,
        1 => Just(31_000),
    ];
    let mode = prop_oneof![4 => Just(Mode::Wait), 1 => Just(Mode::Try)];
    let kind = prop_oneof![6 => Just(Kind::Fair), 1 => Just(Kind::Plain)];
    let lease = prop_oneof![Just(30_000_u64), Just(1_000), 1..100_000_u64];
    let acquire = (who(), kind, mode, lease, any::<bool>(), any::<bool>()).prop_map(
        |(who, kind, mode, lease, again, sure)| Act::Acquire {
            who,
            kind,
            mode,
            lease,
            again,
            sure,
        },
    );
    let usual = prop_oneof![
        8 => pass.prop_map(Act::Pass),
        10 => acquire,
        6 => (who(), prop_oneof![5 => Just(0_u32), 1 => 1..4_u32])
            .prop_map(|(who, keep)| Act::Release { who, keep }),
        1 => who().prop_map(|who| Act::Reenter { who }),
        2 => (who(), 1_000..40_000_u64).prop_map(|(who, ttl)| Act::Renew { who, ttl }),
        3 => (who(), any::<bool>()).prop_map(|(who, bury)| Act::Leave { who, bury }),
        10 => (1..5_u64).prop_map(Act::Beat),
        1 => Just(Act::Nudge),
        1 => Just(Act::Inspect),
        2 => who().prop_map(Act::Place),
        1 => (1..5_u64, any::<bool>()).prop_map(|(who, deaf)| Act::Deaf(who, deaf)),
    ];
    if world == World::Calm {
        return usual.boxed();
    }
    let skew = prop_oneof![3 => Just(0_i64), 1 => -10_000..10_000_i64, 1 => Just(1_000_000)];
    let java_act = prop_oneof![
        4 => Just(JavaAct::Acquire),
        1 => Just(JavaAct::Try),
        1 => Just(JavaAct::Fenced),
        1 => prop_oneof![Just(300_000_i64), Just(30), Just(10_000)].prop_map(JavaAct::Leave),
        4 => Just(JavaAct::Unlock),
        1 => Just(JavaAct::Force),
        2 => any::<bool>().prop_map(JavaAct::Listen),
    ];
    let java = (1..3_u64, java_act, skew).prop_map(|(who, act, skew)| Act::Java(who, act, skew));
    if world == World::Java {
        return prop_oneof![4 => usual, 1 => java].boxed();
    }
    let key = prop::sample::select(vec![
        Key::Hold,
        Key::Token,
        Key::Queue,
        Key::Scores,
        Key::Order,
        Key::State,
        Key::Beats,
        Key::Buried,
        Key::Ttls,
        Key::Duplicate,
        Key::OneScore,
        Key::OneMember,
    ]);
    let fault = prop_oneof![
        4 => key.prop_map(Act::Lose),
        1 => (0..4_000_000_u64).prop_map(Act::Back),
        1 => (0..8 * 86_400_000_u64).prop_map(Act::Pass),
        1 => Just(Act::Force),
    ];
    prop_oneof![16 => usual, 4 => java, 2 => fault].boxed()
}

fn cases() -> impl Strategy<Value = Case> {
    prop_oneof![Just(World::Calm), Just(World::Java), Just(World::Faults)].prop_flat_map(|world| {
        (prop::collection::vec((acts(world), any::<bool>()), 1..2 * ACTS), any::<bool>())
            .prop_map(move |(acts, leap)| Case { world, acts, leap })
    })
}

/// What the clients remember about their owners.
#[derive(Clone, Debug, Default)]
struct Known {
    request: u64,
    order: Option<u64>,
    token: Option<Token>,
    changes: u64,
}

struct Play {
    now: u64,
    /// Microseconds beyond `now`: each call runs in a microsecond of its own.
    tick: u64,
    rules: Rules,
    ears: Ears,
    lock: LockState,
    oracle: Oracle,
    known: BTreeMap<OwnerId, Known>,
    requests: u64,
}

type Checked<T = ()> = Result<T, String>;

impl Play {
    fn new() -> Self {
        Self {
            now: T0,
            tick: 0,
            rules: Rules::default(),
            ears: Ears::default(),
            lock: LockState::default(),
            oracle: Oracle::default(),
            known: BTreeMap::new(),
            requests: 0,
        }
    }

    /// Sends an operation, perhaps twice, and checks all of its consequences.
    fn send(&mut self, op: &Op, twice: bool) -> Checked<Body> {
        self.oracle.time_is(self.now, &self.ears, &self.rules);
        let (body, more) = self.send_once(op)?;
        if !twice || more || matches!(op, Op::Force { .. }) {
            return Ok(body);
        }
        let before = self.lock.clone();
        let (again, _) = self.send_once(op)?;
        let fits = match (&body, &again) {
            (Body::Released, Body::NotHeld { .. })
            | (Body::Left | Body::Freed, Body::Nothing)
            // The first copy may have handed on a hold that had expired.
            | (Body::NotHeld { .. }, Body::NotHeld { .. })
            | (Body::Queued { .. }, Body::Queued { .. })
            | (Body::Beaten { .. }, Body::Beaten { .. }) => true,
            _ => body == again,
        };
        if !fits {
            return Err(format!("{op:?}: {body:?}, and a second copy {again:?}"));
        }
        // State torn by faults may be repaired in two steps.
        if !self.oracle.torn && essence(&before) != essence(&self.lock) {
            return Err(format!("a second {op:?} changed {before:#?} to {:#?}", self.lock));
        }
        Ok(body)
    }

    fn send_once(&mut self, op: &Op) -> Checked<(Body, bool)> {
        self.tick = (self.tick + 1) % 1_000;
        let at_us = self.now * 1_000 + self.tick;
        let (answer, effects) =
            self.lock.apply(at_us, op, &self.rules, &self.ears).map_err(|e| e.to_string())?;
        if answer.now_ms != self.now {
            return Err("another time in the reply".to_owned());
        }
        self.oracle.note(self.now, op, &answer.body, &effects, &self.lock)?;
        for effect in &effects {
            if let Payload::Grant { grant, .. } = &effect.payload {
                self.learn_grant(grant);
            }
        }
        self.learn(op, &answer.body);
        Ok((answer.body, answer.more))
    }

    fn learn_grant(&mut self, grant: &Grant) {
        let mut all = self.known.values_mut();
        if let Some(known) = all.find(|known| request(known.request) == grant.request) {
            known.token = Some(grant.token);
        }
    }

    fn learn(&mut self, op: &Op, body: &Body) {
        if let Body::Beaten { held: Some(grant), .. } = body {
            self.learn_grant(grant);
        }
        let Op::Acquire(a) = op else { return };
        let known = self.known.entry(a.owner.clone()).or_default();
        match body {
            Body::Granted { token, .. } => known.token = Some(*token),
            Body::Queued { order, .. } => known.order = Some(*order),
            _ => {}
        }
    }

    fn act(&mut self, act: &Act, twice: bool) -> Checked {
        match act {
            Act::Pass(ms) => {
                self.now += ms;
                self.oracle.disturbed |= *ms > 50_000;
                self.lost_token();
            }
            Act::Back(ms) => {
                self.now -= ms;
                self.oracle.disturbed = true;
                self.lost_token();
            }
            Act::Deaf(who, true) => {
                self.ears.deaf.insert(client(*who));
            }
            Act::Deaf(who, false) => {
                self.ears.deaf.remove(&client(*who));
            }
            Act::Java(who, act, ahead) => self.java(*who, *act, *ahead)?,
            Act::Lose(key) => self.lose(*key),
            act => {
                if let Some(op) = self.op(act) {
                    self.send(&op, twice)?;
                }
            }
        }
        Ok(())
    }

    /// The second owner of every client is shared between requests.
    fn op(&mut self, act: &Act) -> Option<Op> {
        let owner = |who: &(u64, u64)| ours(who.0, who.1);
        Some(match act {
            Act::Acquire { who, kind, mode, lease, again, sure } => {
                return self.acquire(*who, *kind, *mode, *lease, *again, *sure);
            }
            Act::Release { who, keep } => {
                let known = self.known.get_mut(&owner(who))?;
                known.changes += 1;
                let (token, change) = (known.token?, known.changes);
                Op::Release { kind: Kind::Fair, owner: owner(who), token, keep: *keep, change }
            }
            Act::Reenter { who } => {
                let known = self.known.get_mut(&owner(who))?;
                known.changes += 1;
                let (token, change) = (known.token?, known.changes);
                Op::Reenter { owner: owner(who), token, count: 2, change }
            }
            Act::Renew { who, ttl } => {
                let token = self.known.get(&owner(who))?.token?;
                Op::Renew { kind: Kind::Fair, owner: owner(who), token, ttl_ms: *ttl }
            }
            Act::Leave { who, bury } => {
                let request = request(self.known.get(&owner(who))?.request);
                let shared_owner = who.1 == 2;
                Op::Leave {
                    kind: Kind::Fair,
                    owner: owner(who),
                    request,
                    bury: *bury,
                    shared_owner,
                }
            }
            Act::Beat(who) => {
                let waiters = self.waiters_of(*who);
                Op::Beat { client: client(*who), waiters }
            }
            Act::Nudge => Op::Nudge,
            Act::Force => Op::Force { kind: Kind::Fair },
            Act::Place(who) => Op::Place { owner: owner(who) },
            _ => Op::Inspect { kind: Kind::Fair, limit: 10 },
        })
    }

    fn waiters_of(&self, who: u64) -> Vec<OwnerId> {
        let mut own: Vec<_> = self.oracle.waiting.iter().collect();
        own.retain(|(owner, _)| owner.client() == Some(client(who)));
        own.sort_by_key(|(_, waits)| waits.order);
        own.into_iter().map(|(owner, _)| owner.clone()).collect()
    }

    fn acquire(
        &mut self,
        who: (u64, u64),
        kind: Kind,
        mode: Mode,
        lease_ms: u64,
        again: bool,
        sure: bool,
    ) -> Option<Op> {
        let owner = ours(who.0, who.1);
        let shared_owner = who.1 == 2;
        if let Some(waits) = self.oracle.waiting.get(&owner) {
            // It already waits: another copy. An owner that serves one task at a time makes no
            // other request.
            return Some(Op::Acquire(waits.acquire.clone()));
        }
        let known = self.known.entry(owner.clone()).or_default();
        if known.request == 0 || !again {
            self.requests += 1;
            *known = Known { request: self.requests, changes: known.changes, ..Known::default() };
        }
        Some(Op::Acquire(Acquire {
            kind,
            owner,
            request: request(known.request),
            lease_ms,
            mode,
            order: None,
            not_after_ms: self.now + 30_000,
            sure,
            shared_owner,
        }))
    }

    /// Time keeps the series of tokens going: it breaks when both key and time are lost.
    fn lost_token(&mut self) {
        let k = self.lock.snapshot();
        let over = k.token_expires.is_some_and(|at| self.now > at);
        let lost = over || k.token.unwrap_or(0) < self.oracle.newest;
        self.oracle.series_broken |= lost && self.now * 1_000 <= self.oracle.newest;
    }

    fn change_keys<T>(&mut self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let mut keys = self.lock.snapshot().clone();
        let result = change(&mut keys);
        java::empty_keys_go(&mut keys);
        self.lock = LockState::from_snapshot(keys);
        result
    }

    fn java(&mut self, who: u64, act: JavaAct, ahead: i64) -> Checked {
        self.oracle.time_is(self.now, &self.ears, &self.rules);
        self.oracle.disturbed = true;
        let me = java_owner(who);
        let mut clocks = Clocks::same(self.now);
        clocks.caller += ahead;
        let held_before = self.lock.snapshot().hold.contains_key(&me);
        match act {
            JavaAct::Acquire => {
                self.change_keys(|k| java::acquire(k, clocks, &me, java::WAIT_MS, 30_000));
            }
            JavaAct::Try => {
                self.change_keys(|k| java::try_acquire(k, clocks, &me, 30_000));
            }
            JavaAct::Fenced => {
                // `RFencedLock` has no queue: it takes a free lock and increments the token.
                self.change_keys(|k| {
                    java::expire(k, clocks.server);
                    if k.hold.is_empty() {
                        k.hold.insert(me.clone(), 1);
                        k.hold_expires = Some(clocks.server + 30_000);
                        k.token = Some(k.token.unwrap_or(0) + 1);
                    }
                });
                self.lost_token();
                let token = self.lock.snapshot().token.unwrap_or(0);
                self.oracle.newest = self.oracle.newest.max(token);
            }
            JavaAct::Leave(wait) => self.change_keys(|k| java::leave(k, clocks, &me, wait)),
            JavaAct::Unlock => {
                let unlocked = self.change_keys(|k| java::unlock(k, clocks, &me, 30_000));
                if held_before && unlocked.reply == Some(true) {
                    self.oracle.holder = None;
                }
            }
            JavaAct::Force => {
                self.change_keys(|k| java::force_unlock(k, clocks));
                self.oracle.holder = None;
            }
            JavaAct::Listen(true) => {
                self.ears.java.insert(me.clone());
            }
            JavaAct::Listen(false) => {
                self.ears.java.remove(&me);
            }
        }
        if self.lock.snapshot().hold.contains_key(&me) {
            if let Some((holder, _)) = self.oracle.holder.as_ref().filter(|(h, _)| *h != me) {
                return Err(format!("Java took the lock that {holder} holds"));
            }
            self.oracle.holder = Some((me, self.lock.snapshot().hold_expires));
        }
        Ok(())
    }

    fn lose(&mut self, key: Key) {
        self.oracle.disturbed = true;
        self.oracle.torn = true;
        match key {
            Key::Hold => self.oracle.holder = None,
            Key::Ttls => {
                if let Some((_, until)) = &mut self.oracle.holder {
                    *until = None;
                }
            }
            _ => {}
        }
        self.change_keys(|k| match key {
            Key::Hold => k.hold.clear(),
            Key::Token => (k.token, k.token_expires) = (None, None),
            Key::Queue => k.queue.clear(),
            Key::Scores => k.scores.clear(),
            Key::Order => k.order.clear(),
            Key::State => {
                k.waiters.clear();
                k.record = Default::default();
            }
            Key::Beats => k.beats.clear(),
            Key::Buried => k.buried.clear(),
            Key::Ttls => {
                k.hold_expires = None;
                k.token_expires = None;
                k.queue_expires = None;
                k.scores_expires = None;
                k.order_expires = None;
                k.state_expires = None;
                k.beats_expires = None;
            }
            Key::Duplicate => k.queue.extend(k.queue.back().cloned()),
            Key::OneScore => drop(k.scores.pop_first()),
            Key::OneMember => drop(k.queue.pop_back()),
        });
        self.lost_token();
    }

    /// No more faults: every client sends heartbeats, returns when told to, and releases at once.
    fn drain(&mut self, leap: bool) -> Checked {
        self.ears.java.clear();
        let mut wanted: VecDeque<OwnerId> = self.oracle.waiting.keys().cloned().collect();
        self.oracle.served.clear();
        let end = self.lock.snapshot().hold_expires;
        match end {
            Some(end) if leap => self.now = self.now.max(end + 1),
            _ => drop(self.send(&Op::Force { kind: Kind::Fair }, false)?),
        }
        for _ in 0..ROUNDS {
            let served = std::mem::take(&mut self.oracle.served);
            wanted.retain(|owner| !served.contains(owner));
            self.let_go()?;
            if wanted.is_empty() {
                return Ok(());
            }
            self.now += self.rules.beat_ms;
            for who in 1..5 {
                self.round_of(who)?;
            }
        }
        Err(format!("{wanted:?} not served: {:#?}", self.lock.snapshot()))
    }

    fn round_of(&mut self, who: u64) -> Checked {
        let waiters = self.waiters_of(who);
        if waiters.is_empty() {
            return Ok(());
        }
        let op = Op::Beat { client: client(who), waiters: waiters.clone() };
        let Body::Beaten { held, queued, .. } = self.send(&op, false)? else {
            return Err("a beat was not answered".to_owned());
        };
        for (owner, stands) in waiters.into_iter().zip(queued) {
            let Some(waits) = self.oracle.waiting.get(&owner) else { continue };
            let holds = held.is_some() && self.lock.snapshot().hold.contains_key(&owner);
            if stands || holds {
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
            self.known.entry(owner).or_default().request = self.requests;
            self.send(&Op::Acquire(acquire), false)?;
        }
        Ok(())
    }

    fn let_go(&mut self) -> Checked {
        for _ in 0..20 {
            let Some(owner) = self.lock.snapshot().hold.keys().next().cloned() else { break };
            let Some(token) = self.known.get(&owner).and_then(|known| known.token) else { break };
            let op = Op::Release { kind: Kind::Fair, owner, token, keep: 0, change: u64::MAX };
            if self.send(&op, false)? != Body::Released {
                break;
            }
        }
        Ok(())
    }
}

/// The state that a repeated operation must not change. A second heartbeat may find itself at the
/// head and so write another score; TTLs are rewritten.
fn essence(lock: &LockState) -> Snapshot {
    let k = lock.snapshot();
    Snapshot {
        hold: k.hold.clone(),
        hold_expires: k.hold_expires,
        token: k.token,
        queue: k.queue.clone(),
        order: k.order.clone(),
        waiters: k.waiters.clone(),
        ..Snapshot::default()
    }
}

/// Rounds of heartbeats until everybody is served: deaths, an amnesty, a gathering, and twice the
/// patience with Java heads.
const ROUNDS: u32 = 100;

fn play(case: &Case) -> Checked {
    let mut play = Play::new();
    for (place, (act, twice)) in case.acts.iter().enumerate() {
        play.act(act, *twice).map_err(|what| format!("act {place}: {what}"))?;
    }
    play.drain(case.leap)
}

#[test]
fn random_sequences_keep_every_promise() {
    play_cases(CASES, &cases(), play, |case| {
        let acts: Vec<String> = case.acts.iter().map(|act| format!("{act:?}")).collect();
        format!("{:?}, leap {}:\n{}", case.world, case.leap, acts.join("\n"))
    });
}

/// A member is lost beside a duplicate of another: list and scores have equal lengths, so nothing
/// looks torn. The lost one is told that it waits until the duplicate is found dead, and returns a
/// heartbeat later.
#[test]
fn a_member_that_is_lost_beside_a_duplicate_returns() {
    let acquire = |who| {
        let (kind, mode) = (Kind::Fair, Mode::Wait);
        (Act::Acquire { who, kind, mode, lease: 30_000, again: false, sure: false }, false)
    };
    let acts = vec![
        acquire((3, 2)),
        acquire((1, 1)),
        (Act::Lose(Key::OneMember), false),
        acquire((2, 1)),
        (Act::Lose(Key::Duplicate), false),
    ];
    for leap in [false, true] {
        let case = Case { world: World::Faults, acts: acts.clone(), leap };
        play(&case).unwrap_or_else(|what| panic!("leap {leap}: {what}"));
    }
}
