//! Exhaustive exploration: every interleaving, up to a depth, of two or three clients of ours, a
//! network that reorders, loses and repeats, a Java thread, crashes, a failover, steps of the
//! server's clock, a lost key and the passing of time.
//!
//! Clocks are scaled: a heartbeat is 2 ms, death 6 ms, a lease 9 ms, and time moves in steps that
//! reach each boundary. Two faults need no move of their own: something is lost if it is never
//! chosen, and a client is paused if it is never chosen while time moves on and its inbox is
//! subscribed. `Sim::check` runs in every situation. In a sample of them all faults end, and every
//! live waiter must then get the lock within [`SERVED_WITHIN`] rounds.
//!
//! The numbers of situations are asserted, so that no change of the model goes unnoticed.
//! `FAIRLOCK_EXPLORE_DEEPER=n` goes n steps deeper and asserts no number.

mod pair;

use crate::canon::fingerprint;
use crate::client::{Flaw, Habits, Stage};
use crate::search::{End, Found, Situation, explore};
use crate::sim::Sim;
use crate::turns::Turns;
use fairlock_core::Rules;
use pair::Pair;
use std::fmt::Debug;

/// Scaled milliseconds.
pub(crate) const BEAT: u64 = 2;
const DEAD: u64 = 6;
const LEASE: u64 = 9;
/// A lease, a death, an amnesty, a gathering, and two turns of every client.
const SERVED_WITHIN: u64 = LEASE + 2 * DEAD + 4 * BEAT + 4;
/// One in this many situations is tried for liveness.
const SAMPLE: usize = 16;
const T0: u64 = 1_000_000;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Start(usize),
    AskAgain(usize),
    GiveUp(usize),
    Release(usize),
    Beat(usize),
    Renew(usize),
    OweAgain(usize),
    Crash(usize),
    Execute(usize),
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
    again: u8,
    give_ups: u8,
    beats: u8,
    renewals: u8,
    crashes: u8,
    copies: u8,
    java: u8,
    deaf: u8,
    failovers: u8,
    steps: u8,
    /// Deletions of the order key.
    losses: u8,
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
    flaw: Flaw,
    passes: &'static [u64],
    java_ahead: i64,
    java_lease: u64,
    clock_steps: &'static [i64],
    /// Whether the order of service is checked, and by what.
    turns: Option<Turns>,
    /// One in this many situations is tried for liveness.
    sample: usize,
}

impl Scene {
    fn begin(&self) -> Sim {
        let rules = Rules {
            beat_ms: BEAT,
            dead_ms: DEAD,
            fair_wait_ms: 40,
            bury_ms: LEASE + DEAD,
            java_fleet: self.budget.java > 0,
            presence: true,
            ages: true,
        };
        let habits = Habits {
            lease_ms: LEASE,
            store_timeout_ms: LEASE,
            one_owner: self.one_owner,
            servers_time: self.budget.steps > 0,
            given_back_again: if self.budget.failovers > 0 { 4 } else { 0 },
            flaw: self.flaw,
        };
        let mut sim = Sim::new(rules, &vec![habits; self.clients], T0);
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
            let attempt = client.current.as_ref();
            if attempt.is_none() && budget.starts[i] > 0 {
                out.push(Move::Start(i));
            }
            if client.is_waiting() && budget.give_ups > 0 {
                out.push(Move::GiveUp(i));
            }
            let unsent = attempt.is_some_and(|a| a.unanswered == 0);
            if attempt.is_some_and(|a| a.stage == Stage::Asking) && (unsent || budget.again > 0) {
                out.push(Move::AskAgain(i));
            }
            if attempt.is_some_and(|a| a.stage == Stage::Waiting)
                && client.beats_out == 0
                && budget.beats > 0
            {
                out.push(Move::Beat(i));
            }
            if attempt.is_some_and(|a| matches!(a.stage, Stage::Holding { .. })) {
                out.push(Move::Release(i));
                if client.renewals_out == 0 && budget.renewals > 0 {
                    out.push(Move::Renew(i));
                }
            }
            if !client.debts.is_empty() && budget.again > 0 {
                out.push(Move::OweAgain(i));
            }
            if budget.crashes > 0 && attempt.is_some() {
                out.push(Move::Crash(i));
            }
            if sim.ears.deaf.contains(&client.id) {
                out.push(Move::Subscribe(i));
            } else if budget.deaf > 0 {
                out.push(Move::Deafen(i));
            }
        }
        out.extend((0..sim.calls.len()).map(Move::Execute));
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

pub(crate) fn step(sim: &mut Sim, budget: &mut Budget, step: Move) {
    match step {
        Move::Start(i) => {
            budget.starts[i] -= 1;
            let call = sim.clients[i].start(sim.now);
            sim.calls.push(call);
        }
        Move::AskAgain(i) => {
            let copies = sim.clients[i].current.as_ref().map_or(0, |a| a.unanswered);
            budget.again -= u8::from(copies > 0);
            let call = sim.clients[i].ask_again(sim.now);
            sim.calls.push(call);
        }
        Move::GiveUp(i) => {
            budget.give_ups -= 1;
            let calls = sim.clients[i].give_up(sim.now);
            sim.calls.extend(calls);
        }
        Move::Release(i) => {
            let calls = sim.clients[i].release(sim.now);
            sim.calls.extend(calls);
        }
        Move::Beat(i) => {
            budget.beats -= 1;
            let call = sim.clients[i].beat(sim.now);
            sim.calls.push(call);
        }
        Move::Renew(i) => {
            budget.renewals -= 1;
            let call = sim.clients[i].renew(sim.now);
            sim.calls.extend(call);
        }
        Move::OweAgain(i) => {
            budget.again -= 1;
            let calls = sim.clients[i].owe_again(sim.now);
            sim.calls.extend(calls);
        }
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
        let set_back = self.scene.clock_steps.iter().map(|by| by.unsigned_abs()).sum::<u64>();
        for _ in 0..SERVED_WITHIN + set_back * u64::from(self.scene.budget.steps) {
            if sim.is_served() {
                return sim.check();
            }
            sim.now += 1;
            sim.calm_round(end.last_first);
            sim.check()?;
        }
        if patience && !sim.java.alive {
            return Ok(());
        }
        Err(format!("not served: {:#?}\n{:#?}", sim.clients, sim.lock.snapshot()))
    }
}

fn explored(scene: &Scene) -> Found<Move> {
    explore(scene.name, Alone::new(scene), scene.depth + deeper(), scene.sample)
}

fn deeper() -> usize {
    std::env::var("FAIRLOCK_EXPLORE_DEEPER").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn right(name: &str, found: Found<impl Debug>, situations: usize) {
    if let Some((what, path)) = found.wrong {
        panic!("{name}: {what}\nafter {} moves: {path:?}", path.len());
    }
    if deeper() == 0 {
        assert_eq!(
            found.situations, situations,
            "{name}: rules or model have changed; if that was meant, write the new number down"
        );
    }
}

fn nothing_wrong(scene: &Scene, situations: usize) {
    right(scene.name, explored(scene), situations);
}

const NOTHING: Budget = Budget {
    starts: [1, 1, 0],
    again: 0,
    give_ups: 0,
    beats: 0,
    renewals: 0,
    crashes: 0,
    copies: 0,
    java: 0,
    deaf: 0,
    failovers: 0,
    steps: 0,
    losses: 0,
};

const PASSES: &[u64] = &[1, 7];

/// The first client holds the lock and the second one knows that it waits.
const HELD_AND_WAITED_FOR: &[Move] = &[
    Move::Start(0),
    Move::Execute(0),
    Move::Hear(0),
    Move::Start(1),
    Move::Execute(0),
    Move::Hear(0),
];

/// The third one also knows that it waits, behind them.
const THE_THIRD_WAITS: &[Move] = &[Move::Start(2), Move::Execute(0), Move::Hear(0)];

/// The inbox of the second is gone when its turn comes: the third gets the lock.
const THE_SECOND_IS_PASSED_OVER: &[Move] = &[
    Move::Deafen(1),
    Move::Release(0),
    Move::Execute(0),
    Move::Hear(0),
    Move::Read(0),
    Move::Subscribe(1),
];

/// The Java thread holds the lock and the first client knows that it waits.
const HELD_BY_JAVA: &[Move] =
    &[Move::JavaAcquires, Move::Start(0), Move::Execute(0), Move::Hear(0)];

fn scene(name: &'static str, depth: usize, before: Before, budget: Budget) -> Scene {
    Scene {
        name,
        clients: 2,
        before,
        depth,
        budget,
        one_owner: false,
        flaw: Flaw::None,
        passes: PASSES,
        java_ahead: 0,
        java_lease: LEASE,
        clock_steps: &[],
        turns: None,
        sample: SAMPLE,
    }
}

/// The order of service is checked, too. Such scenes are smaller, and more of their situations are
/// tried for liveness.
fn in_turn(name: &'static str, depth: usize, before: Before, budget: Budget) -> Scene {
    Scene { turns: Some(Turns::default()), sample: 8, ..scene(name, depth, before, budget) }
}

/// Requests are repeated and given up at every moment.
fn requests() -> Scene {
    let budget = Budget { starts: [2, 1, 0], again: 2, give_ups: 2, beats: 1, ..NOTHING };
    scene("requests", 9, &[], budget)
}

/// The same on a lock that is held and has a waiter.
fn requests_in_the_queue() -> Scene {
    let budget = Budget { starts: [2, 2, 0], again: 2, give_ups: 2, beats: 2, ..NOTHING };
    scene("requests in the queue", 8, &[HELD_AND_WAITED_FOR], budget)
}

/// The same with one owner for all attempts of a client.
fn one_owner() -> Scene {
    let queue = requests_in_the_queue();
    Scene { one_owner: true, name: "one owner", ..queue }
}

/// Heartbeats, renewals and repeated messages race with the ends of leases.
fn validity() -> Scene {
    let budget = Budget { starts: [2, 2, 0], beats: 4, renewals: 2, copies: 1, ..NOTHING };
    scene("validity", 10, &[HELD_AND_WAITED_FOR], budget)
}

/// Clients die while they ask, wait and hold.
fn crashes() -> Scene {
    let budget = Budget { starts: [2, 2, 0], again: 1, beats: 3, crashes: 1, ..NOTHING };
    scene("crashes", 9, &[HELD_AND_WAITED_FOR], budget)
}

/// A Java thread is in the same queue; its clock is right.
fn beside_java() -> Scene {
    let budget =
        Budget { starts: [2, 1, 0], beats: 2, give_ups: 1, crashes: 1, java: 2, ..NOTHING };
    scene("beside Java", 9, &[HELD_BY_JAVA], budget)
}

/// A Java thread whose clock is so far ahead that it drops live waiters.
fn beside_fast_java() -> Scene {
    let budget = Budget { starts: [2, 2, 0], beats: 3, java: 2, ..NOTHING };
    let scene = scene("beside a fast Java", 10, &[HELD_BY_JAVA], budget);
    Scene { java_ahead: 1_000_000, ..scene }
}

/// Three clients want one lock; one dies, one gives up, one is not heard for a while.
fn three_clients() -> Scene {
    let budget = Budget {
        starts: [2, 1, 1],
        again: 1,
        beats: 2,
        crashes: 1,
        deaf: 1,
        give_ups: 1,
        ..NOTHING
    };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS];
    Scene { clients: 3, ..in_turn("three clients", 6, before, budget) }
}

/// The one that was passed over returns while the others continue.
fn three_clients_and_a_return() -> Scene {
    let budget = Budget { starts: [3, 1, 2], beats: 2, deaf: 1, again: 1, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS, THE_SECOND_IS_PASSED_OVER];
    Scene { clients: 3, ..in_turn("three clients and a return", 7, before, budget) }
}

/// Two clients use two locks; each has one inbox for both.
fn two_locks() -> Scene {
    let budget = Budget { starts: [2, 1, 0], again: 1, beats: 1, give_ups: 1, ..NOTHING };
    in_turn("two locks", 6, &[HELD_AND_WAITED_FOR], budget)
}

/// A replica that lacks the last operations, however many, becomes the master.
fn failover() -> Scene {
    let budget = Budget {
        starts: [2, 2, 0],
        again: 1,
        beats: 2,
        renewals: 1,
        give_ups: 1,
        failovers: 1,
        ..NOTHING
    };
    in_turn("failover", 6, &[HELD_AND_WAITED_FOR], budget)
}

/// The server's clock steps forward and back by more than a lease.
fn clock_steps() -> Scene {
    let budget = Budget { starts: [2, 2, 0], again: 1, beats: 2, renewals: 1, steps: 2, ..NOTHING };
    let scene = in_turn("clock steps", 7, &[HELD_AND_WAITED_FOR], budget);
    Scene { clock_steps: &[10, -10], ..scene }
}

/// The same while one client that was passed over is out of the queue and another one has the lock.
fn clock_steps_and_a_return() -> Scene {
    let budget = Budget { starts: [3, 1, 2], beats: 2, deaf: 1, steps: 2, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS, THE_SECOND_IS_PASSED_OVER];
    let scene = in_turn("clock steps and a return", 7, before, budget);
    Scene { clients: 3, clock_steps: &[10, -10], ..scene }
}

/// The order key is deleted while two clients wait; they return when they learn of it.
fn a_lost_order() -> Scene {
    let budget = Budget { starts: [2, 1, 1], beats: 4, losses: 1, again: 1, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS];
    Scene { clients: 3, ..in_turn("a lost order", 7, before, budget) }
}

#[test]
fn three_clients_want_one_lock() {
    nothing_wrong(&three_clients(), 107_961);
}

#[test]
fn three_clients_and_one_comes_back() {
    nothing_wrong(&three_clients_and_a_return(), 94_971);
}

#[test]
fn two_locks_have_one_inbox() {
    let scene = two_locks();
    let depth = scene.depth + deeper();
    let found = explore(scene.name, Pair::new(&scene), depth, scene.sample);
    right(scene.name, found, 129_398);
}

#[test]
fn a_failover_loses_the_tail() {
    nothing_wrong(&failover(), 50_966);
}

#[test]
fn the_servers_clock_steps() {
    nothing_wrong(&clock_steps(), 141_700);
}

#[test]
fn the_servers_clock_steps_and_one_comes_back() {
    nothing_wrong(&clock_steps_and_a_return(), 102_141);
}

#[test]
fn the_order_is_lost_while_two_wait() {
    nothing_wrong(&a_lost_order(), 111_659);
}

#[test]
fn requests_repeated_and_given_up() {
    nothing_wrong(&requests(), 2_350_851);
}

#[test]
fn requests_repeated_and_given_up_in_the_queue() {
    nothing_wrong(&requests_in_the_queue(), 1_116_184);
}

#[test]
fn requests_of_one_owner() {
    nothing_wrong(&one_owner(), 1_133_417);
}

#[test]
fn validity_at_the_ends_of_leases() {
    nothing_wrong(&validity(), 3_879_397);
}

#[test]
fn clients_that_die() {
    nothing_wrong(&crashes(), 1_189_811);
}

#[test]
fn a_java_thread_in_the_queue() {
    nothing_wrong(&beside_java(), 1_923_281);
}

#[test]
fn a_java_thread_with_a_fast_clock() {
    nothing_wrong(&beside_fast_java(), 585_462);
}

/// Breaks a rule of the client; the exploration must notice.
fn finds(flaw: Flaw, scene: Scene) {
    was_found(flaw, explored(&Scene { flaw, ..scene }));
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
