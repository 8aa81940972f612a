//! Places survive a clock that goes back, and the loss of the order key. w, x and y are waiters of
//! ours, J is a Java thread.

use crate::client::Flaw;
use crate::lab::{LEASE, lab, wanted};
use crate::sim::Sim;
use crate::support::{client, ours};
use fairlock_core::{Body, LockState, Op, Rules, Snapshot};

const HOUR_MS: i64 = 3_600_000;

fn order_of(body: &Body) -> u64 {
    let Body::Queued { order, .. } = body else { panic!("{body:?}") };
    *order
}

/// w's inbox was gone at its turn, so it is out of the queue, which is empty. The server's clock
/// goes back by an hour. x takes the free lock and y waits for it. y used to get a number of an
/// hour ago, so w returned with its own number behind y, which had come later.
#[test]
fn who_is_passed_over_keeps_its_place_when_the_clock_goes_back() {
    let mut sim = lab(4, Flaw::None);
    sim.start(0);
    let w = order_of(&sim.start(1));
    sim.deafen(client(2), true);
    sim.release(0);
    assert!(sim.holder().is_none() && sim.keys().queue.is_empty(), "w is out");

    sim.step_clock(-HOUR_MS);
    assert!(matches!(sim.start(2), Body::Granted { .. }));
    let y = order_of(&sim.start(3));
    assert_eq!(y, w + 1, "behind the last number that was given");
    sim.deafen(client(2), false);
    sim.beat(1);
    sim.hear_all();
    assert_eq!(sim.keys().queue, [ours(2, 1), ours(4, 1)]);
    sim.release(2);
    assert!(sim.keys().hold.contains_key(&ours(2, 1)), "w, then y");
    assert_eq!(sim.check(), Ok(()));
}

/// The clock went back; then w was granted the lock and did not hear of it, and its claim ran out.
/// Another client took the lock and released it, with nobody in the queue. That used to delete
/// everything known of the lock, including the last number.
#[test]
fn the_last_number_is_kept_while_the_clock_is_behind_it() {
    let mut sim = lab(5, Flaw::None);
    sim.start(0);
    let w = order_of(&sim.start(1));
    sim.step_clock(-HOUR_MS);
    sim.release(0);
    sim.messages.clear();
    sim.pass(LEASE);
    assert!(matches!(sim.start(2), Body::Granted { .. }), "w's claim has run out");
    sim.release(2);
    assert_eq!(sim.keys().record.given, Some(w), "nobody waits, and this is kept");

    assert!(matches!(sim.start(3), Body::Granted { .. }));
    assert_eq!(order_of(&sim.start(4)), w + 1);
    sim.beat(1);
    sim.hear_all();
    assert_eq!(sim.keys().queue, [ours(2, 1), ours(5, 1)]);
    assert_eq!(sim.check(), Ok(()));
}

/// As soon as the clock has passed the last number, nothing is kept for it.
#[test]
fn the_last_number_goes_when_the_clock_has_passed_it() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    sim.start(1);
    sim.step_clock(-500);
    sim.give_up(1);
    sim.pass(499);
    sim.release(0);
    assert!(sim.keys().record.given.is_some());
    sim.pass(2);
    sim.op(Op::Beat { client: client(2), waiters: Vec::new() });
    let left = Snapshot {
        token: sim.keys().token,
        token_expires: sim.keys().token_expires,
        ..Snapshot::default()
    };
    assert_eq!(*sim.keys(), left);
}

/// Beside older clients, which note no last number, the numbers in the queue still count; the
/// larger one wins.
#[test]
fn numbers_go_on_beside_clients_that_note_none() {
    let mut sim = lab(4, Flaw::None);
    sim.start(0);
    let first = order_of(&sim.start(1));
    sim.tamper(|k| k.record.given = None);
    sim.step_clock(-HOUR_MS);
    let second = order_of(&sim.start(2));
    assert_eq!(second, first + 1, "behind the tail of the queue");
    // An older client's waiter: its number is in the queue alone.
    sim.tamper(|k| k.record.given = Some(first));
    assert_eq!(order_of(&sim.start(3)), second + 1);
    assert_eq!(sim.keys().record.given, Some(second + 1));
}

/// If all processes are on one machine, whose time never goes back, nothing is noted.
#[test]
fn no_number_is_noted_where_time_never_goes_back() {
    let rules = Rules { ages: false, ..Rules::default() };
    let mut lock = LockState::default();
    let ears = crate::support::Ears::default();
    for number in 1..=2 {
        let op = Op::Acquire(wanted(&ours(number, 1), number, crate::lab::T0));
        lock.apply(crate::lab::T0 * 1_000, &op, &rules, &ears).unwrap();
    }
    assert_eq!((lock.snapshot().order.len(), lock.snapshot().record.given), (1, None));
}

/// x (client 1) holds the lock; w (2), J and y (3) wait, and the order key was deleted.
fn order_is_lost() -> Sim {
    let mut sim = lab(4, Flaw::None);
    sim.start(0);
    sim.start(1);
    sim.java_acquires();
    sim.start(2);
    sim.pass(1);
    sim.tamper(|k| k.order.clear());
    sim
}

/// y's heartbeat came first. At that time no smaller number than y's own was known, so y used to go
/// to the front, before J and w, and got the lock if it was released at that moment.
#[test]
fn who_returns_first_after_a_loss_of_the_order_keeps_its_place() {
    let mut sim = order_is_lost();
    let line = sim.keys().queue.clone();
    // A newcomer in between has the only number.
    sim.start(3);
    sim.beat(2);
    sim.hear_all();
    sim.release(0);
    assert_eq!(sim.holder(), None, "w has not returned yet");
    sim.beat(1);
    sim.hear_all();
    assert_eq!(sim.holding_client(), Some(client(2)), "w");
    let rest: Vec<_> = line.into_iter().skip(1).chain([ours(4, 1)]).collect();
    assert_eq!(sim.keys().queue, rest);
    assert_eq!(sim.check(), Ok(()));
}

/// A waiter that is in the list twice, as an operator may leave it, is there once after it has
/// returned.
#[test]
fn who_returns_after_a_loss_of_the_order_stands_once() {
    let mut sim = order_is_lost();
    let line = sim.keys().queue.clone();
    sim.tamper(|k| k.queue.push_back(ours(3, 1)));
    let Some(order) = sim.clients[2].current().and_then(|attempt| attempt.order) else {
        panic!("y was told its number")
    };
    let back = fairlock_core::Acquire { order: Some(order), ..wanted(&ours(3, 1), 77, sim.now) };
    assert_eq!(order_of(&sim.op(Op::Acquire(back)).body), order);
    assert_eq!(sim.keys().queue, line);
}
