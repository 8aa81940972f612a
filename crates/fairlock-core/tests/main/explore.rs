//! Exhaustive exploration: every interleaving up to a depth of two clients of ours, a network
//! that reorders, loses and repeats, a Java thread, crashes and the passing of time.
//!
//! Clocks are scaled: a heartbeat is 2 ms, death 6 ms, a lease 9 ms, and time goes on by steps
//! that reach each boundary. Losing something is never choosing it, pausing a client is never
//! choosing it while time goes on and its inbox is subscribed: neither needs a move of its own.
//! `Sim::check` is asked in every situation; from a sample of them all faults end and every live
//! waiter must get the lock within [`SERVED_WITHIN`] rounds.
//!
//! The numbers of situations are asserted, so that nobody changes the model without noticing.
//! `FAIRLOCK_EXPLORE_DEEPER=n` goes n steps deeper and asserts no number.

use crate::canon::fingerprint;
use crate::client::{Flaw, Habits, Stage};
use crate::sim::Sim;
use fairlock_core::Rules;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Scaled milliseconds.
pub(crate) const BEAT: u64 = 2;
const DEAD: u64 = 6;
const LEASE: u64 = 9;
/// A lease, a death, an amnesty, a gathering, and two turns of everybody.
const SERVED_WITHIN: u64 = LEASE + 2 * DEAD + 4 * BEAT + 4;
/// Every so many-th situation is tried for liveness.
const SAMPLE: usize = 16;
const T0: u64 = 1_000_000;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
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
    Pass(u64),
    JavaAcquires,
    JavaSubscribes,
    JavaUnlocks,
    JavaLeaves,
    JavaDies,
}

/// How often what may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Budget {
    starts: [u8; 2],
    again: u8,
    give_ups: u8,
    beats: u8,
    renewals: u8,
    crashes: u8,
    copies: u8,
    java: u8,
}

/// What is explored.
#[derive(Clone, Debug)]
struct Scene {
    name: &'static str,
    /// What happened before the exploration begins.
    before: &'static [Move],
    depth: usize,
    budget: Budget,
    one_owner: bool,
    flaw: Flaw,
    passes: &'static [u64],
    java_ahead: i64,
    java_lease: u64,
}

/// What came out.
#[derive(Debug)]
struct Found {
    situations: usize,
    moves: usize,
    tried: usize,
    wrong: Option<(String, Vec<Move>)>,
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
            flaw: self.flaw,
        };
        let mut sim = Sim::new(rules, &[habits, habits], T0);
        sim.java.ahead = self.java_ahead;
        sim.java.lease = self.java_lease;
        sim
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
        }
        out.extend((0..sim.calls.len()).map(Move::Execute));
        out.extend((0..sim.replies.len()).map(Move::Hear));
        out.extend((0..sim.messages.len()).map(Move::Read));
        if budget.copies > 0 {
            out.extend((0..sim.messages.len()).map(Move::ReadCopy));
        }
        out.extend(self.passes.iter().map(|ms| Move::Pass(*ms)));
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

fn step(sim: &mut Sim, budget: &mut Budget, step: Move) {
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
            let id = sim.clients[i].id;
            std::rc::Rc::make_mut(&mut sim.ears).deaf.insert(id);
        }
        Move::Execute(place) => {
            sim.execute(place);
        }
        Move::Hear(place) => sim.hear(place),
        Move::Read(place) => sim.read(place),
        Move::ReadCopy(place) => {
            budget.copies -= 1;
            let message = sim.messages[place].clone();
            sim.read_copy_of(message.to, &message.payload);
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

/// From here on nothing fails: everybody who lives and waits must get the lock in time.
fn served(mut sim: Sim, lose: bool) -> Result<(), String> {
    // A Java head that died waiting costs its patience; that is for the tests at real scale.
    let patience = sim.lock.snapshot().queue.iter().any(|m| !m.is_ours());
    if lose {
        sim.lose_all();
    }
    sim.settle();
    for _ in 0..SERVED_WITHIN {
        if !sim.somebody_waits() && sim.clients.iter().all(|c| !c.alive || c.debts.is_empty()) {
            return sim.check();
        }
        sim.now += 1;
        sim.calm_round();
        sim.check()?;
    }
    if patience && !sim.java.alive {
        return Ok(());
    }
    Err(format!("not served: {:#?}\n{:#?}", sim.clients, sim.lock.snapshot()))
}

fn explore(scene: &Scene) -> Found {
    let deeper = std::env::var("FAIRLOCK_EXPLORE_DEEPER").ok().and_then(|n| n.parse().ok());
    let depth = scene.depth + deeper.unwrap_or(0);
    let java = scene.budget.java > 0;
    let (mut start, mut budget) = (scene.begin(), scene.budget.clone());
    for choice in scene.before {
        step(&mut start, &mut budget, *choice);
    }
    let root = fingerprint(&start, &budget, java);
    let mut from: HashMap<u64, (u64, Option<Move>)> = HashMap::from([(root, (root, None))]);
    let mut layer = vec![(root, start, budget)];
    let mut found = Found { situations: 1, moves: 0, tried: 0, wrong: None };
    let mut moves = Vec::new();
    let began = Instant::now();
    for level in 1..=depth {
        let mut next = Vec::new();
        for (id, sim, budget) in &layer {
            scene.moves(sim, budget, &mut moves);
            for choice in &moves {
                found.moves += 1;
                let (mut sim, mut budget) = (sim.clone(), budget.clone());
                let result = catch_unwind(AssertUnwindSafe(|| {
                    step(&mut sim, &mut budget, *choice);
                    sim.check()
                }));
                let key = fingerprint(&sim, &budget, java);
                let mut verdict = result.unwrap_or_else(|_| Err("panicked".to_owned()));
                if verdict.is_ok() {
                    let Entry::Vacant(entry) = from.entry(key) else { continue };
                    entry.insert((*id, Some(*choice)));
                    found.situations += 1;
                    if found.situations.is_multiple_of(SAMPLE) {
                        found.tried += 1;
                        let lose = found.situations.is_multiple_of(2 * SAMPLE);
                        verdict = catch_unwind(AssertUnwindSafe(|| served(sim.clone(), lose)))
                            .unwrap_or_else(|_| Err("panicked".to_owned()))
                            .map_err(|what| format!("{what} (faults off, lost: {lose})"));
                    }
                }
                if let Err(what) = verdict {
                    found.wrong = Some((what, path(&from, *id, *choice)));
                    return found;
                }
                if level < depth {
                    next.push((key, sim, budget));
                }
            }
        }
        layer = next;
    }
    println!(
        "{}: depth {depth}, {} situations, {} moves, {} tried for liveness, {:.1?}",
        scene.name,
        found.situations,
        found.moves,
        found.tried,
        began.elapsed()
    );
    found
}

fn path(from: &HashMap<u64, (u64, Option<Move>)>, last: u64, choice: Move) -> Vec<Move> {
    let mut path = vec![choice];
    let mut at = last;
    while let (before, Some(step)) = from[&at] {
        path.push(step);
        at = before;
    }
    path.reverse();
    path
}

fn nothing_wrong(scene: &Scene, situations: usize) {
    let found = explore(scene);
    if let Some((what, path)) = found.wrong {
        panic!("{}: {what}\nafter {} moves: {path:?}", scene.name, path.len());
    }
    if std::env::var("FAIRLOCK_EXPLORE_DEEPER").is_err() {
        assert_eq!(
            found.situations, situations,
            "{}: rules or model have changed; if that was meant, write the new number down",
            scene.name
        );
    }
}

const NOTHING: Budget = Budget {
    starts: [1, 1],
    again: 0,
    give_ups: 0,
    beats: 0,
    renewals: 0,
    crashes: 0,
    copies: 0,
    java: 0,
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

/// The Java thread holds the lock and the first client knows that it waits.
const HELD_BY_JAVA: &[Move] =
    &[Move::JavaAcquires, Move::Start(0), Move::Execute(0), Move::Hear(0)];

fn scene(name: &'static str, depth: usize, before: &'static [Move], budget: Budget) -> Scene {
    Scene {
        name,
        before,
        depth,
        budget,
        one_owner: false,
        flaw: Flaw::None,
        passes: PASSES,
        java_ahead: 0,
        java_lease: LEASE,
    }
}

/// Requests are repeated and given up at every moment.
fn requests() -> Scene {
    let budget = Budget { starts: [2, 1], again: 2, give_ups: 2, beats: 1, ..NOTHING };
    scene("requests", 9, &[], budget)
}

/// The same on a lock that is held and waited for.
fn requests_in_the_queue() -> Scene {
    let budget = Budget { starts: [2, 2], again: 2, give_ups: 2, beats: 2, ..NOTHING };
    scene("requests in the queue", 8, HELD_AND_WAITED_FOR, budget)
}

/// The same with one owner for all attempts of a client.
fn one_owner() -> Scene {
    let queue = requests_in_the_queue();
    Scene { one_owner: true, name: "one owner", ..queue }
}

/// Heartbeats, renewals and repeated messages race with the ends of leases.
fn validity() -> Scene {
    let budget = Budget { starts: [2, 2], beats: 4, renewals: 2, copies: 1, ..NOTHING };
    scene("validity", 10, HELD_AND_WAITED_FOR, budget)
}

/// Clients die while they ask, wait and hold.
fn crashes() -> Scene {
    let budget = Budget { starts: [2, 2], again: 1, beats: 3, crashes: 1, ..NOTHING };
    scene("crashes", 9, HELD_AND_WAITED_FOR, budget)
}

/// A Java thread stands in the same queue; its clock is right.
fn beside_java() -> Scene {
    let budget = Budget { starts: [2, 1], beats: 2, give_ups: 1, crashes: 1, java: 2, ..NOTHING };
    scene("beside Java", 9, HELD_BY_JAVA, budget)
}

/// A Java thread whose clock is so far ahead that it drops living waiters.
fn beside_fast_java() -> Scene {
    let budget = Budget { starts: [2, 2], beats: 3, java: 2, ..NOTHING };
    let scene = scene("beside a fast Java", 10, HELD_BY_JAVA, budget);
    Scene { java_ahead: 1_000_000, ..scene }
}

#[test]
fn requests_repeated_and_given_up() {
    nothing_wrong(&requests(), 2_350_860);
}

#[test]
fn requests_repeated_and_given_up_in_the_queue() {
    nothing_wrong(&requests_in_the_queue(), 1_107_849);
}

#[test]
fn requests_of_one_owner() {
    nothing_wrong(&one_owner(), 1_122_941);
}

#[test]
fn validity_at_the_ends_of_leases() {
    nothing_wrong(&validity(), 3_694_696);
}

#[test]
fn clients_that_die() {
    nothing_wrong(&crashes(), 1_160_407);
}

#[test]
fn a_java_thread_in_the_queue() {
    nothing_wrong(&beside_java(), 1_851_037);
}

#[test]
fn a_java_thread_with_a_fast_clock() {
    nothing_wrong(&beside_fast_java(), 506_790);
}

/// Breaks a rule of the client; the exploration must find out.
fn finds(flaw: Flaw, scene: Scene) {
    let found = explore(&Scene { flaw, ..scene });
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
