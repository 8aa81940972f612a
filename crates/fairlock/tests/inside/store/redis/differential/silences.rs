//! Users with long silences: some try, some wait, some give up, some die, operators delete keys,
//! and nothing happens for up to a day. Whatever the pauses, a lock that nobody alive holds or
//! waits for is obtained by the first try after the deadline of the dead users, and every key has a
//! TTL. Runs on the core alone, on a server (beside the core), and in the file of the host store.

use super::fixture::Fixture;
use super::rng::{Rng, seed};
use super::run::{Run, START_US, Seen, client};
use super::step::Step;
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Kind, LockState, Mode, Op, OwnerId, RequestId, Rules,
    Snapshot, Token, World,
};
use fairlock_testkit::server::Generation;
use std::collections::BTreeSet;

const MINUTE: u64 = 60_000;
const LEASE: u64 = 30_000;
/// Steps of a history; fewer than the entries that one call examines, so that no reply says MORE.
const STEPS: u64 = 60;

/// The implementation under test (the core, a server or a file) and how time passes there.
trait Subject {
    fn rules(&self) -> &Rules;
    fn pass(&mut self, ms: u64);
    /// # Errors
    /// If two stores differ.
    fn call(&mut self, op: &Op) -> Result<Body, String>;
    fn keys(&self) -> Snapshot;
    fn lose(&mut self, which: usize);
    fn comes(&mut self, number: u64);
    /// All its connections and files are closed.
    fn is_killed(&mut self, number: u64);
}

/// The core, in a world as servers show it, or as the host store shows it.
struct Core {
    lock: LockState,
    rules: Rules,
    now_us: u64,
    known: Known,
}

#[derive(Default)]
struct Known {
    inboxes: BTreeSet<ClientId>,
    gone: BTreeSet<ClientId>,
}

impl World for Known {
    fn inbox(&self, client: ClientId) -> bool {
        self.inboxes.contains(&client)
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }

    fn gone(&self, client: ClientId) -> bool {
        self.gone.contains(&client)
    }
}

impl Core {
    fn new(rules: Rules) -> Self {
        Self { lock: LockState::default(), rules, now_us: START_US, known: Known::default() }
    }
}

fn without(mut keys: Snapshot, which: usize) -> Snapshot {
    match which {
        0 => (keys.order, keys.order_expires) = Default::default(),
        1 => {
            (keys.waiters, keys.record) = Default::default();
            keys.state_expires = None;
        }
        2 => (keys.beats, keys.beats_expires) = Default::default(),
        _ => (keys.scores, keys.scores_expires) = Default::default(),
    }
    keys
}

impl Subject for Core {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn call(&mut self, op: &Op) -> Result<Body, String> {
        let applied = self.lock.apply(self.now_us, op, &self.rules, &self.known);
        applied.map(|(answer, _)| answer.body).map_err(|error| error.to_string())
    }

    fn keys(&self) -> Snapshot {
        self.lock.snapshot().clone()
    }

    fn lose(&mut self, which: usize) {
        self.lock = LockState::from_snapshot(without(self.keys(), which));
    }

    fn comes(&mut self, number: u64) {
        self.known.inboxes.insert(client(number));
    }

    fn is_killed(&mut self, number: u64) {
        self.known.inboxes.remove(&client(number));
    }
}

/// A server, and the core beside it.
struct Server<'a> {
    run: Run<'a>,
    rules: Rules,
}

impl Subject for Server<'_> {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn pass(&mut self, ms: u64) {
        self.run.step(&Step::Time((ms * 1_000) as i64)).expect("time passes");
    }

    fn call(&mut self, op: &Op) -> Result<Body, String> {
        let answer: Option<Answer> = self.run.both(op)?;
        Ok(answer.ok_or("refused")?.body)
    }

    fn keys(&self) -> Snapshot {
        self.run.core().snapshot().clone()
    }

    fn lose(&mut self, which: usize) {
        let key = [4, 5, 6, 2][which];
        self.run.step(&Step::Meddle(super::step::Fault::Delete(key))).expect("deleted");
    }

    fn comes(&mut self, number: u64) {
        self.run.step(&Step::Inbox { client: number, on: true }).expect("subscribed");
    }

    fn is_killed(&mut self, number: u64) {
        self.run.step(&Step::Inbox { client: number, on: false }).expect("closed");
    }
}

/// The file of the host store.
#[cfg(feature = "sqlite")]
struct File {
    core: Core,
    file: crate::store::host::HostFile,
    name: fairlock_core::LockName,
    /// Whether the store can prove a death.
    proves: bool,
    _dir: fairlock_testkit::tempdir::TempDir,
}

#[cfg(feature = "sqlite")]
impl File {
    fn new(proves: bool) -> Self {
        let dir = fairlock_testkit::tempdir::TempDir::new();
        let busy = std::time::Duration::from_secs(5);
        let options =
            crate::store::host::OpenOptions { shared_with_group: false, busy, create: true };
        let path = dir.path().join("locks");
        let file = crate::store::host::HostFile::open(&path, &options).expect("a file of our own");
        let name = fairlock_core::LockName::new(b"job").expect("a legal name");
        let core = Core::new(Rules { ages: false, ..Rules::default() });
        Self { core, file, name, proves, _dir: dir }
    }
}

#[cfg(feature = "sqlite")]
impl Subject for File {
    fn rules(&self) -> &Rules {
        &self.core.rules
    }

    fn pass(&mut self, ms: u64) {
        self.core.pass(ms);
    }

    fn call(&mut self, op: &Op) -> Result<Body, String> {
        self.file.stopped_us = Some(self.core.now_us);
        let Core { rules, known, .. } = &self.core;
        let applied = self.file.apply(&self.name, op, rules, known);
        let body = applied.map(|(answer, _)| answer.body).map_err(|e| e.error.to_string())?;
        let state = self.file.state_of(&self.name).map_err(|e| e.error.to_string())?;
        self.core.lock = state;
        Ok(body)
    }

    fn keys(&self) -> Snapshot {
        self.core.keys()
    }

    fn lose(&mut self, which: usize) {
        self.core.lose(which);
        self.file.stopped_us = Some(self.core.now_us);
        self.file.put(&self.name, &self.core.lock).expect("the state is written");
    }

    fn comes(&mut self, number: u64) {
        self.core.comes(number);
    }

    fn is_killed(&mut self, number: u64) {
        // Without a proof of death only its bell is closed, which nobody checks.
        if self.proves {
            self.core.is_killed(number);
            self.core.known.gone.insert(client(number));
        }
    }
}

/// A live waiter or holder.
#[derive(Clone, Debug)]
struct User {
    number: u64,
    request: RequestId,
    order: u64,
    /// Set while it holds the lock.
    token: Option<Token>,
}

impl User {
    fn owner(&self) -> OwnerId {
        OwnerId::ours(client(self.number), 1).expect("a legal number")
    }
}

struct Users<'a, B> {
    subject: &'a mut B,
    rng: Rng,
    now_ms: u64,
    came: u64,
    requests: u64,
    alive: Vec<User>,
    /// The time by which dead users no longer block the lock, and the end of their hold as it was
    /// known before that time.
    due_ms: u64,
    hold_ends_ms: u64,
    /// How many tries had to get the lock.
    owed: u64,
}

impl<'a, B: Subject> Users<'a, B> {
    fn new(subject: &'a mut B, seed: u64) -> Self {
        Self {
            subject,
            rng: Rng::new(seed),
            now_ms: START_US / 1_000,
            came: 0,
            requests: 0,
            alive: Vec::new(),
            due_ms: 0,
            hold_ends_ms: 0,
            owed: 0,
        }
    }

    fn play(&mut self) -> Result<u64, String> {
        for at in 0..STEPS {
            self.step().map_err(|story| format!("step {at}: {story}"))?;
        }
        while let Some(user) = self.alive.pop() {
            self.dies(&user);
        }
        self.pass(24 * 60 * MINUTE)?;
        self.tries(true)?;
        Ok(self.owed)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..30 => {
                let lets_go = self.rng.chance(60);
                self.tries(lets_go)
            }
            30..48 => self.waits(),
            48..55 => self.leaves(),
            55..66 => {
                if let Some(user) = self.draw() {
                    self.dies(&user);
                }
                Ok(())
            }
            66..74 => self.releases(),
            74..78 => {
                let which = self.rng.below(4) as usize;
                self.subject.lose(which);
                Ok(())
            }
            78..90 => {
                let ms = self.rng.pick(&[1, 700, 2_000, 6_001, 9_000, 31_000]);
                self.pass(ms)
            }
            _ => {
                // Nobody arrives for a long time; all or nearly all present users are dead by then.
                while self.alive.len() > self.rng.pick(&[0, 0, 0, 1]) {
                    let user = self.alive.remove(0);
                    self.dies(&user);
                }
                let pauses =
                    [9_000, 20_000, 45_000, 66_000, 10 * MINUTE, 180 * MINUTE, 1_440 * MINUTE];
                let ms = self.rng.pick(&pauses);
                self.pass(if self.alive.is_empty() { ms } else { ms.min(2 * MINUTE) })
            }
        }
    }

    fn draw(&mut self) -> Option<User> {
        let last = self.alive.len().checked_sub(1)?;
        let at = self.rng.below(last as u64 + 1) as usize;
        Some(self.alive.remove(at))
    }

    fn dies(&mut self, user: &User) {
        // Otherwise it hangs, and its connections stay open.
        if self.rng.chance(50) {
            self.subject.is_killed(user.number);
        }
    }

    /// An operation of a waiter or holder, which is a sign of life.
    fn call(&mut self, op: &Op) -> Result<Body, String> {
        let body = self.ask(op)?;
        let rules = self.subject.rules();
        let silence = if rules.ages { rules.dead_ms } else { 10 * MINUTE };
        self.due_ms = self.now_ms + silence + rules.beat_ms;
        self.hold_ends_ms = self.hold_ends();
        Ok(body)
    }

    fn ask(&mut self, op: &Op) -> Result<Body, String> {
        let due = self.is_due();
        let body = self.subject.call(op)?;
        if !due {
            self.hold_ends_ms = self.hold_ends();
        }
        let k = self.subject.keys();
        let endless = [
            ("lock", k.hold.is_empty(), k.hold_expires),
            ("queue", k.queue.is_empty(), k.queue_expires),
            ("scores", k.scores.is_empty(), k.scores_expires),
            ("token", k.token.is_none(), k.token_expires),
            ("order", k.order.is_empty(), k.order_expires),
            ("state", !k.has_state(), k.state_expires),
            ("beats", k.beats.is_empty(), k.beats_expires),
        ];
        match endless.iter().find(|(_, empty, expires)| !empty && expires.is_none()) {
            Some((key, ..)) => Err(format!("{key} has no TTL after {op:?}: {k:#?}")),
            None => Ok(body),
        }
    }

    fn hold_ends(&self) -> u64 {
        self.subject.keys().hold_expires.unwrap_or(0)
    }

    fn is_due(&self) -> bool {
        self.alive.is_empty() && self.now_ms > self.due_ms.max(self.hold_ends_ms)
    }

    fn newcomer(&mut self) -> User {
        self.came += 1;
        self.requests += 1;
        let request = RequestId::from_random(u128::from(self.requests));
        self.subject.comes(self.came);
        User { number: self.came, request, order: 0, token: None }
    }

    fn wants(&self, user: &User, mode: Mode, order: Option<u64>) -> Op {
        Op::Acquire(Acquire {
            kind: Kind::Fair,
            owner: user.owner(),
            request: user.request,
            lease_ms: LEASE,
            mode,
            order,
            not_after_ms: self.now_ms + LEASE,
            sure: order.is_some(),
            shared_owner: false,
        })
    }

    fn tries(&mut self, lets_go: bool) -> Result<(), String> {
        let mut user = self.newcomer();
        let due = self.is_due();
        let before = self.subject.keys();
        let op = self.wants(&user, Mode::Try, None);
        let Body::Granted { token, .. } = self.ask(&op)? else {
            return match due {
                false => Ok(()),
                true => Err(format!(
                    "a free lock is not obtained at {} ms, deadline {}, hold until {}: {before:#?}",
                    self.now_ms, self.due_ms, self.hold_ends_ms
                )),
            };
        };
        self.owed += u64::from(due);
        self.hold_ends_ms = self.hold_ends();
        user.token = Some(token);
        self.alive.push(user);
        if lets_go { self.releases() } else { Ok(()) }
    }

    fn waits(&mut self) -> Result<(), String> {
        let user = self.newcomer();
        let op = self.wants(&user, Mode::Wait, None);
        let body = self.call(&op)?;
        self.alive.push(user);
        self.hears(self.alive.len() - 1, &body);
        Ok(())
    }

    /// Takes a reply to a waiter into account.
    fn hears(&mut self, at: usize, body: &Body) {
        let user = &mut self.alive[at];
        match body {
            Body::Granted { token, .. } => user.token = Some(*token),
            Body::Queued { order, .. } => user.order = *order,
            Body::Beaten { held: Some(grant), .. } if grant.request == user.request => {
                user.token = Some(grant.token);
            }
            _ => {}
        }
    }

    fn leaves(&mut self) -> Result<(), String> {
        let Some(user) = self.draw() else { return Ok(()) };
        let (owner, request) = (user.owner(), user.request);
        let kind = Kind::Fair;
        self.call(&Op::Leave { kind, owner, request, bury: false, shared_owner: false })?;
        match user.token {
            Some(token) => self.releases_hold(user.owner(), token),
            None => Ok(()),
        }
    }

    fn releases(&mut self) -> Result<(), String> {
        let Some(at) = self.alive.iter().position(|user| user.token.is_some()) else {
            return Ok(());
        };
        let user = self.alive.remove(at);
        let token = user.token.expect("it was looked for");
        self.releases_hold(user.owner(), token)
    }

    fn releases_hold(&mut self, owner: OwnerId, token: Token) -> Result<(), String> {
        self.call(&Op::Release { kind: Kind::Fair, owner, token, keep: 0, change: 1 }).map(drop)
    }

    /// Lets time pass, with the heartbeats and renewals of live users.
    fn pass(&mut self, ms: u64) -> Result<(), String> {
        let end = self.now_ms + ms;
        let period = self.subject.rules().beat_ms;
        while self.now_ms < end {
            let step = if self.alive.is_empty() { ms } else { period.min(end - self.now_ms) };
            self.now_ms += step;
            self.subject.pass(step);
            for at in 0..self.alive.len() {
                self.shows_life(at)?;
            }
            // A user whose hold was lost stops.
            let k = self.subject.keys();
            self.alive.retain(|user| user.token.is_none() || k.hold.contains_key(&user.owner()));
        }
        Ok(())
    }

    fn shows_life(&mut self, at: usize) -> Result<(), String> {
        let user = self.alive[at].clone();
        if let Some(token) = user.token {
            let kind = Kind::Fair;
            return self
                .call(&Op::Renew { kind, owner: user.owner(), token, ttl_ms: LEASE })
                .map(drop);
        }
        let id = client(user.number);
        let body = self.call(&Op::Beat { client: id, waiters: vec![user.owner()] })?;
        self.hears(at, &body);
        let gone = matches!(&body, Body::Beaten { queued, .. } if queued == &[false]);
        if gone && self.alive[at].token.is_none() {
            self.requests += 1;
            self.alive[at].request = RequestId::from_random(u128::from(self.requests));
            let back = self.wants(&self.alive[at].clone(), Mode::Wait, Some(user.order));
            let body = self.call(&back)?;
            self.hears(at, &body);
        }
        Ok(())
    }
}

/// Plays histories on subjects made by `make`.
fn histories<B: Subject>(count: u64, mut make: impl FnMut() -> B) {
    let first = seed();
    println!("FAIRLOCK_SEED={first}");
    let mut owed = 0;
    for at in 0..count {
        let seed = first.wrapping_add(at);
        let played = Users::new(&mut make(), seed).play();
        owed += played.unwrap_or_else(|story| panic!("FAIRLOCK_SEED={seed}: {story}"));
    }
    println!("{count} histories, {owed} tries that had to get the lock");
    assert!(owed >= count, "{owed} tries of {count} histories were owed the lock: too few");
}

fn servers_rules() -> [Rules; 2] {
    [true, false].map(|presence| Rules { presence, ..Rules::default() })
}

#[test]
fn whoever_tries_after_a_silence_gets_a_free_lock_from_the_core() {
    for rules in servers_rules() {
        histories(1_500, || Core::new(rules.clone()));
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn whoever_tries_after_a_silence_gets_a_free_lock_from_the_host_store() {
    for proves in [true, false] {
        histories(60, || File::new(proves));
    }
}

fn on_a_server(generation: Generation) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    for rules in servers_rules() {
        let first = seed();
        println!("FAIRLOCK_SEED={first}");
        let mut owed = 0;
        for at in 0..60 {
            fixture.reset(START_US);
            let mut seen = Seen::new();
            let run = Run::new(&mut fixture, rules.clone(), Snapshot::default(), &mut seen);
            let mut subject = Server { run, rules: rules.clone() };
            let seed = first.wrapping_add(at);
            let played = Users::new(&mut subject, seed).play();
            owed += played.unwrap_or_else(|story| panic!("FAIRLOCK_SEED={seed}: {story}"));
        }
        assert!(owed >= 60, "{owed} tries were owed the lock: too few");
    }
}

#[test]
fn whoever_tries_after_a_silence_gets_a_free_lock_on_redis_7_0() {
    on_a_server(Generation::Redis70);
}

#[test]
fn whoever_tries_after_a_silence_gets_a_free_lock_on_redis_6_2() {
    on_a_server(Generation::Redis62);
}

#[test]
fn whoever_tries_after_a_silence_gets_a_free_lock_on_valkey_9_1() {
    on_a_server(Generation::Valkey91);
}
