//! Exhaustive exploration: every interleaving, up to a depth, of two or three clients of ours, a
//! network that reorders, loses and repeats, a Java thread, crashes, a failover, steps of the
//! server's clock, a lost key and the passing of time.
//!
//! Both sides are the real machines: the lock is a [`fairlock_core::LockState`], the clients are
//! machines of [`fairlock_core::client`]. A heartbeat is 2 s, death 6 s, a lease 9 s, and time
//! moves in steps that reach each boundary. Two faults need no move of their own: something is lost
//! if it is never chosen, and a client is paused if it is never chosen while time moves on and its
//! inbox is subscribed. `Sim::check` runs in every situation. In a sample of them all faults end.
//! Every live waiter must then get the lock within [`SERVED_WITHIN`] rounds, and after that nothing
//! may remain of any request (K1).
//!
//! The numbers of situations are asserted, so that no change of the rules goes unnoticed: of the commit tier, which goes
//! one step less deep, and of the full tier. `FAIRLOCK_EXPLORE_DEEPER=n` goes n steps deeper and asserts no number.

mod pair;
mod scenes;
mod shared;

use crate::canon::{T0, fingerprint};
use crate::client::{Client, Flaw, Habits, Holding};
use crate::search::{End, Found, Situation, explore};
use crate::sim::Sim;
use crate::turns::Turns;
use fairlock_core::{Rules, Share};
use pair::Pair;
use scenes::*;
use std::fmt::Debug;

/// The step of time when the faults are over, in milliseconds as all that follow.
pub(crate) const TICK: u64 = 1_000;
pub(crate) const BEAT: u64 = 2_000;
const DEAD: u64 = 6_000;
const LEASE: u64 = 9_000;
/// A lease, a death, an amnesty, a gathering, and two turns of every client, in ticks.
const SERVED_WITHIN: u64 = (LEASE + 2 * DEAD + 4 * BEAT) / TICK + 4;
/// One in this many situations is tried for liveness.
const SAMPLE: usize = 16;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Start(usize),
    /// Nobody waits for the result any more.
    Gone(usize),
    /// The time of an attempt is up.
    Late(usize),
    /// A call of the client has no answer, and may be executed all the same.
    Fail(usize, usize),
    /// It was surely not executed.
    Refuse(usize, usize),
    /// The pause after a failed copy is over.
    AskAgain(usize),
    Release(usize),
    /// A writer reads from now on.
    Downgrade(usize),
    Beat(usize),
    /// The watchdog looks at what is due.
    Watch(usize),
    OweAgain(usize),
    Disconnect(usize),
    Connect(usize),
    /// A slow client does what an input asked for.
    CarryOut(usize),
    Crash(usize),
    Execute(usize),
    /// A copy of the call arrives later.
    ExecuteCopy(usize),
    Hear(usize),
    Read(usize),
    ReadCopy(usize),
    Deafen(usize),
    Subscribe(usize),
    CutReplica,
    FailOver,
    StepClock(i64),
    LoseOrder,
    Pass(u64),
    JavaAcquires,
    JavaSubscribes,
    JavaUnlocks,
    JavaLeaves,
    JavaDies,
}

/// How often each thing may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    starts: [u8; 3],
    fails: u8,
    refusals: u8,
    cuts: u8,
    give_ups: u8,
    beats: u8,
    crashes: u8,
    copies: u8,
    java: u8,
    deaf: u8,
    failovers: u8,
    steps: u8,
    /// Deletions of the order key.
    losses: u8,
    downgrades: u8,
    /// Copies of calls that arrive later.
    late: u8,
}

/// Moves in several parts, so that one scene can continue where another begins.
type Before = &'static [&'static [Move]];

/// What is explored.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    name: &'static str,
    clients: usize,
    /// What happened before the exploration begins.
    before: Before,
    depth: usize,
    budget: Budget,
    one_owner: bool,
    slow: bool,
    patience_ms: Option<u64>,
    flaw: Flaw,
    passes: &'static [u64],
    java_ahead: i64,
    java_lease: u64,
    clock_steps: &'static [i64],
    /// Whether the order of service is checked, and by what.
    turns: Option<Turns>,
    /// One in this many situations is tried for liveness.
    sample: usize,
    /// What each client asks for, of a lock that several may hold.
    shares: [Option<Share>; 3],
}

impl Scene {
    fn begin(&self) -> Sim {
        let rules = Rules {
            beat_ms: BEAT,
            dead_ms: DEAD,
            fair_wait_ms: 40_000,
            bury_ms: LEASE + DEAD,
            java_fleet: self.budget.java > 0,
            presence: true,
            ages: true,
        };
        let habits = Habits {
            lease_ms: LEASE,
            store_timeout_ms: LEASE,
            beat_ms: BEAT,
            patience_ms: self.patience_ms,
            one_owner: self.one_owner,
            servers_time: self.budget.steps > 0,
            fails_over: self.budget.failovers > 0,
            slow: self.slow,
            flaw: self.flaw,
            share: None,
        };
        let shares = self.shares[..self.clients].iter();
        let habits: Vec<_> = shares.map(|share| Habits { share: *share, ..habits }).collect();
        let mut sim = Sim::new(rules, &habits, T0);
        sim.turns = self.turns.clone();
        sim.java.ahead = self.java_ahead;
        sim.java.lease = self.java_lease;
        sim
    }

    fn before(&self) -> impl Iterator<Item = Move> {
        self.before.iter().copied().flatten().copied()
    }

    fn moves(&self, sim: &Sim, budget: &Budget, out: &mut Vec<Move>) {
        out.clear();
        for (i, client) in sim.clients.iter().enumerate().filter(|(_, c)| c.alive) {
            client_moves(i, client, sim, budget, out);
            if sim.ears.deaf.contains(&client.id) {
                out.push(Move::Subscribe(i));
            } else if budget.deaf > 0 {
                out.push(Move::Deafen(i));
            }
        }
        out.extend((0..sim.calls.len()).map(Move::Execute));
        if budget.late > 0 {
            let of_holds =
                (0..sim.calls.len()).filter(|place| sim.calls[*place].op.hold().is_some());
            out.extend(of_holds.map(Move::ExecuteCopy));
        }
        out.extend((0..sim.replies.len()).map(Move::Hear));
        out.extend((0..sim.messages.len()).map(Move::Read));
        if budget.copies > 0 {
            out.extend((0..sim.messages.len()).map(Move::ReadCopy));
        }
        out.extend(self.passes.iter().map(|ms| Move::Pass(*ms)));
        if sim.replica.is_some() {
            out.push(Move::FailOver);
        } else if budget.failovers > 0 {
            out.push(Move::CutReplica);
        }
        if budget.steps > 0 {
            out.extend(self.clock_steps.iter().map(|by| Move::StepClock(*by)));
        }
        if budget.losses > 0 {
            out.push(Move::LoseOrder);
        }
        self.java_moves(sim, budget, out);
    }

    fn java_moves(&self, sim: &Sim, budget: &Budget, out: &mut Vec<Move>) {
        let java = &sim.java;
        if !java.alive || self.budget.java == 0 {
            return;
        }
        if java.holds {
            out.push(Move::JavaUnlocks);
        } else if java.wants || budget.java > 0 {
            out.push(Move::JavaAcquires);
        }
        if java.wants {
            if !sim.java_listens() {
                out.push(Move::JavaSubscribes);
            }
            out.push(Move::JavaLeaves);
        }
        if budget.crashes > 0 && (java.wants || java.holds) {
            out.push(Move::JavaDies);
        }
    }
}

fn client_moves(i: usize, client: &Client, sim: &Sim, budget: &Budget, out: &mut Vec<Move>) {
    let now = sim.now;
    let mut may = |can: bool, choice| out.extend(can.then_some(choice));
    let free = client.current().is_none() && client.guarding().is_none();
    may(free && budget.starts[i] > 0, Move::Start(i));
    may(client.is_waiting() && budget.give_ups > 0, Move::Gone(i));
    may(client.guarding().is_some(), Move::Release(i));
    let writes = |held: &Holding| client.habits.share == Some(Share::Whole) && !held.hold.reads();
    may(budget.downgrades > 0 && client.guarding().is_some_and(writes), Move::Downgrade(i));
    may(client.is_late(now), Move::Late(i));
    may(client.connected && client.attempts.iter().any(|a| a.pauses()), Move::AskAgain(i));
    may(client.debts.iter().any(|debt| debt.unsent), Move::OweAgain(i));
    // The last heartbeat only finds that there is nobody left.
    may(client.may_beat() && (budget.beats > 0 || client.attempts.is_empty()), Move::Beat(i));
    may(client.must_watch(now), Move::Watch(i));
    for call in 0..client.waits.len() {
        may(budget.fails > 0, Move::Fail(i, call));
        may(budget.refusals > 0 && sim.is_under_way(i, call), Move::Refuse(i, call));
    }
    may(client.connected && budget.cuts > 0, Move::Disconnect(i));
    may(!client.connected, Move::Connect(i));
    may(client.has_todo(now), Move::CarryOut(i));
    let something = !(client.attempts.is_empty() && client.held.is_empty());
    may(budget.crashes > 0 && something, Move::Crash(i));
}

pub(crate) fn step(sim: &mut Sim, budget: &mut Budget, step: Move) {
    match step {
        Move::Start(i) => {
            budget.starts[i] -= 1;
            sim.input(i, Client::begin);
        }
        Move::Gone(i) => {
            budget.give_ups -= 1;
            sim.input(i, Client::give_up);
        }
        Move::Late(i) => sim.input(i, Client::late),
        Move::Fail(i, call) => {
            budget.fails -= 1;
            let about = sim.clients[i].waits[call];
            sim.input(i, |client, now| client.fail(now, about, true));
        }
        Move::Refuse(i, call) => {
            budget.refusals -= 1;
            sim.refuse(i, call);
        }
        Move::AskAgain(i) => sim.input(i, Client::rested),
        Move::Release(i) => sim.input(i, Client::release),
        Move::Downgrade(i) => {
            budget.downgrades -= 1;
            sim.input(i, Client::downgrade);
        }
        Move::Beat(i) => {
            budget.beats = budget.beats.saturating_sub(1);
            sim.input(i, Client::beat);
        }
        Move::Watch(i) => sim.input(i, Client::watch),
        Move::OweAgain(i) => sim.input(i, Client::owe_again),
        Move::Disconnect(i) => {
            budget.cuts -= 1;
            sim.disconnect(i);
        }
        Move::Connect(i) => sim.connect(i),
        Move::CarryOut(i) => sim.input(i, Client::carry_out),
        Move::Crash(i) => {
            budget.crashes -= 1;
            sim.clients[i].alive = false;
            sim.subscribe(i, false);
        }
        Move::Deafen(i) => {
            budget.deaf -= 1;
            sim.subscribe(i, false);
        }
        Move::Subscribe(i) => sim.subscribe(i, true),
        Move::CutReplica => {
            budget.failovers -= 1;
            sim.cut_replica();
        }
        Move::FailOver => sim.fail_over(),
        Move::StepClock(by) => {
            budget.steps -= 1;
            sim.step_clock(by);
        }
        Move::LoseOrder => {
            budget.losses -= 1;
            sim.tamper(|k| k.order.clear());
        }
        Move::Execute(place) => {
            sim.execute(place);
        }
        Move::ExecuteCopy(place) => {
            budget.late -= 1;
            sim.execute_copy(place);
        }
        Move::Hear(place) => sim.hear(place),
        Move::Read(place) => sim.read(place),
        Move::ReadCopy(place) => {
            budget.copies -= 1;
            let message = sim.messages[place].clone();
            sim.read_copy_of(&message);
        }
        Move::Pass(ms) => sim.now += ms,
        Move::JavaAcquires => {
            if !sim.java.wants {
                budget.java -= 1;
            }
            sim.java_acquires();
        }
        Move::JavaSubscribes => sim.subscribe_java(true),
        Move::JavaUnlocks => {
            sim.java_unlocks();
        }
        Move::JavaLeaves => sim.java_leaves(),
        Move::JavaDies => {
            budget.crashes -= 1;
            sim.java.alive = false;
            sim.subscribe_java(false);
        }
    }
}

/// A position in the exploration of a scene.
#[derive(Clone)]
pub(crate) struct Alone<'a> {
    scene: &'a Scene,
    pub(crate) sim: Sim,
    budget: Budget,
}

impl<'a> Alone<'a> {
    fn new(scene: &'a Scene) -> Self {
        let mut start = Self { scene, sim: scene.begin(), budget: scene.budget.clone() };
        for choice in scene.before() {
            start.step(choice);
        }
        start
    }
}

impl Situation for Alone<'_> {
    type Move = Move;

    fn moves(&self, out: &mut Vec<Move>) {
        self.scene.moves(&self.sim, &self.budget, out);
    }

    fn step(&mut self, choice: Move) {
        step(&mut self.sim, &mut self.budget, choice);
    }

    fn check(&self) -> Result<(), String> {
        self.sim.check()
    }

    fn key(&self) -> u64 {
        fingerprint(&self.sim, &self.budget, self.scene.budget.java > 0)
    }

    fn served(self, end: End) -> Result<(), String> {
        let mut sim = self.sim;
        // A Java head that died waiting costs its patience; the tests at real scale cover that.
        let patience = sim.lock.snapshot().queue.iter().any(|m| !m.is_ours());
        sim.end_faults(end.lose);
        sim.settle();
        let set_back =
            self.scene.clock_steps.iter().map(|by| by.unsigned_abs()).sum::<u64>() / TICK;
        for _ in 0..SERVED_WITHIN + set_back * u64::from(self.scene.budget.steps) {
            if sim.is_served() {
                return sim.nothing_remains();
            }
            sim.now += TICK;
            sim.calm_round(end.last_first);
            sim.check()?;
        }
        if patience && !sim.java.alive {
            return Ok(());
        }
        Err(format!("not served: {:#?}\n{:#?}", sim.clients, sim.lock))
    }
}

fn explored(scene: &Scene, depth: usize) -> Found<Move> {
    explore(scene.name, Alone::new(scene), depth, scene.sample)
}

fn deeper() -> usize {
    std::env::var("FAIRLOCK_EXPLORE_DEEPER").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// `situations`: how many there are one step less deep, which is what the commit tier explores, and in all.
fn right<M: Debug>(scene: &Scene, found: impl FnOnce(usize) -> Found<M>, situations: [usize; 2]) {
    let is_commit_tier = std::env::var_os("FAIRLOCK_TEST_COMMIT_TIER").is_some();
    let found = found(scene.depth + deeper() - usize::from(is_commit_tier));
    let name = scene.name;
    if let Some((what, path)) = found.wrong {
        panic!("{name}: {what}\nafter {} moves: {path:?}", path.len());
    }
    if deeper() == 0 {
        assert_eq!(
            found.situations,
            situations[usize::from(!is_commit_tier)],
            "{name}: the rules have changed; if that was meant, write the new numbers down"
        );
    }
}

fn nothing_wrong(scene: &Scene, situations: [usize; 2]) {
    right(scene, |depth| explored(scene, depth), situations);
}

#[test]
fn three_clients_want_one_lock() {
    nothing_wrong(&three_clients(), [24_242, 135_009]);
}

#[test]
fn three_clients_and_one_comes_back() {
    nothing_wrong(&three_clients_and_a_return(), [24_474, 118_544]);
}

#[test]
fn two_locks_have_one_inbox() {
    let scene = two_locks();
    let found = |depth| explore(scene.name, Pair::new(&scene), depth, scene.sample);
    right(&scene, found, [22_606, 153_548]);
}

#[test]
fn a_failover_loses_the_tail() {
    nothing_wrong(&failover(), [6_991, 38_012]);
}

#[test]
fn the_servers_clock_steps() {
    nothing_wrong(&clock_steps(), [18_744, 91_544]);
}

#[test]
fn the_servers_clock_steps_and_one_comes_back() {
    nothing_wrong(&clock_steps_and_a_return(), [32_428, 159_718]);
}

#[test]
fn the_order_is_lost_while_two_wait() {
    nothing_wrong(&a_lost_order(), [26_482, 135_357]);
}

#[test]
fn a_confirmation_that_is_not_answered() {
    nothing_wrong(&confirmation(), [33_455, 107_423]);
}

#[test]
fn copies_of_a_return() {
    nothing_wrong(&returns(), [61_317, 237_586]);
}

#[test]
fn what_follows_is_done_later() {
    nothing_wrong(&slow_hands(), [83_661, 402_796]);
}

#[test]
fn connections_are_lost() {
    nothing_wrong(&cuts(), [54_121, 279_971]);
}

#[test]
fn time_is_up() {
    nothing_wrong(&timed(), [83_662, 384_014]);
}

#[test]
fn requests_repeated_and_given_up() {
    nothing_wrong(&requests(), [163_071, 803_192]);
}

#[test]
fn requests_repeated_and_given_up_in_the_queue() {
    nothing_wrong(&requests_in_the_queue(), [148_560, 800_693]);
}

#[test]
fn requests_of_one_owner() {
    nothing_wrong(&one_owner(), [150_818, 814_307]);
}

#[test]
fn validity_at_the_ends_of_leases() {
    nothing_wrong(&validity(), [144_681, 636_660]);
}

#[test]
fn clients_that_die() {
    nothing_wrong(&crashes(), [269_928, 1_201_217]);
}

#[test]
fn a_java_thread_in_the_queue() {
    nothing_wrong(&beside_java(), [107_849, 473_780]);
}

#[test]
fn a_java_thread_with_a_fast_clock() {
    nothing_wrong(&beside_fast_java(), [63_396, 231_404]);
}

/// Breaks a rule of the client; the exploration must notice.
fn finds(flaw: Flaw, scene: Scene) {
    was_found(flaw, explored(&Scene { flaw, ..scene }, scene.depth));
}

fn was_found(flaw: Flaw, found: Found<impl Debug>) {
    let (what, path) = found.wrong.unwrap_or_else(|| panic!("{flaw:?} goes unnoticed"));
    println!("{flaw:?} is found after {} moves: {}", path.len(), what.lines().next().unwrap());
}

#[test]
fn broken_rules_are_noticed() {
    finds(Flaw::MessageFromArrival, validity());
    finds(Flaw::ReplyWholeLease, requests());
    finds(Flaw::LeaveFormerAtOnce, validity());
    finds(Flaw::NoBury, requests());
    finds(Flaw::NoLeave, requests());
}

/// Rules that matter only in the wider scenes.
#[test]
fn broken_rules_of_wider_scenes_are_noticed() {
    finds(Flaw::NoOrderOnReturn, three_clients_and_a_return());
    finds(Flaw::GivenBackOnce, failover());
    finds(Flaw::OwnClock, clock_steps());
    let scene = Scene { flaw: Flaw::RequestsPerLock, ..two_locks() };
    was_found(scene.flaw, explore(scene.name, Pair::new(&scene), scene.depth, scene.sample));
}
