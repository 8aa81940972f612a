//! What is explored: where it begins, what may happen, and how deep it goes.

use super::{BEAT, Before, Budget, LEASE, Move, SAMPLE, Scene, TICK};
use crate::client::Flaw;
use crate::turns::Turns;

pub(super) const NOTHING: Budget = Budget {
    starts: [1, 1, 0],
    fails: 0,
    refusals: 0,
    cuts: 0,
    give_ups: 0,
    beats: 0,
    crashes: 0,
    copies: 0,
    java: 0,
    deaf: 0,
    failovers: 0,
    steps: 0,
    losses: 0,
    downgrades: 0,
    late: 0,
};

const PASSES: &[u64] = &[1_000, 7_000];

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

pub(super) fn scene(name: &'static str, depth: usize, before: Before, budget: Budget) -> Scene {
    Scene {
        name,
        clients: 2,
        before,
        depth,
        budget,
        one_owner: false,
        slow: false,
        patience_ms: None,
        flaw: Flaw::None,
        passes: PASSES,
        java_ahead: 0,
        java_lease: LEASE,
        clock_steps: &[],
        turns: None,
        sample: SAMPLE,
        shares: [None; 3],
    }
}

/// The order of service is checked, too. Such scenes are smaller, and more of their situations are
/// tried for liveness.
fn in_turn(name: &'static str, depth: usize, before: Before, budget: Budget) -> Scene {
    Scene { turns: Some(Turns::default()), sample: 8, ..scene(name, depth, before, budget) }
}

/// Requests are repeated and given up at every moment.
pub(super) fn requests() -> Scene {
    let budget = Budget { starts: [2, 1, 0], fails: 2, give_ups: 2, beats: 1, ..NOTHING };
    scene("requests", 9, &[], budget)
}

/// The same on a lock that is held and has a waiter.
pub(super) fn requests_in_the_queue() -> Scene {
    let budget = Budget { starts: [2, 2, 0], fails: 2, give_ups: 2, beats: 2, ..NOTHING };
    scene("requests in the queue", 8, &[HELD_AND_WAITED_FOR], budget)
}

/// The same with one owner for all attempts of a client.
pub(super) fn one_owner() -> Scene {
    let queue = requests_in_the_queue();
    Scene { one_owner: true, name: "one owner", ..queue }
}

/// Heartbeats, renewals and repeated messages race with the ends of leases.
pub(super) fn validity() -> Scene {
    let budget = Budget { starts: [2, 2, 0], beats: 4, copies: 1, ..NOTHING };
    scene("validity", 9, &[HELD_AND_WAITED_FOR], budget)
}

/// Clients die while they ask, wait and hold.
pub(super) fn crashes() -> Scene {
    let budget = Budget { starts: [2, 2, 0], fails: 1, beats: 3, crashes: 1, ..NOTHING };
    scene("crashes", 9, &[HELD_AND_WAITED_FOR], budget)
}

/// A Java thread is in the same queue; its clock is right.
pub(super) fn beside_java() -> Scene {
    let budget =
        Budget { starts: [2, 1, 0], beats: 2, give_ups: 1, crashes: 1, java: 2, ..NOTHING };
    scene("beside Java", 8, &[HELD_BY_JAVA], budget)
}

/// A Java thread whose clock is so far ahead that it drops live waiters.
pub(super) fn beside_fast_java() -> Scene {
    let budget = Budget { starts: [2, 2, 0], beats: 3, java: 2, ..NOTHING };
    let scene = scene("beside a fast Java", 9, &[HELD_BY_JAVA], budget);
    Scene { java_ahead: 1_000_000_000, ..scene }
}

/// Three clients want one lock; one dies, one gives up, one is not heard for a while.
pub(super) fn three_clients() -> Scene {
    let budget = Budget {
        starts: [2, 1, 1],
        fails: 1,
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
pub(super) fn three_clients_and_a_return() -> Scene {
    let budget = Budget { starts: [3, 1, 2], beats: 2, deaf: 1, fails: 1, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS, THE_SECOND_IS_PASSED_OVER];
    Scene { clients: 3, ..in_turn("three clients and a return", 7, before, budget) }
}

/// Two clients use two locks; each has one inbox for both.
pub(super) fn two_locks() -> Scene {
    let budget = Budget { starts: [2, 1, 0], fails: 1, beats: 1, give_ups: 1, ..NOTHING };
    in_turn("two locks", 6, &[HELD_AND_WAITED_FOR], budget)
}

/// A replica that lacks the last operations, however many, becomes the master.
pub(super) fn failover() -> Scene {
    let budget =
        Budget { starts: [2, 2, 0], fails: 1, beats: 2, give_ups: 1, failovers: 1, ..NOTHING };
    in_turn("failover", 6, &[HELD_AND_WAITED_FOR], budget)
}

/// The server's clock steps forward and back by more than a lease.
pub(super) fn clock_steps() -> Scene {
    let budget = Budget { starts: [2, 2, 0], fails: 1, beats: 2, steps: 2, ..NOTHING };
    let scene = in_turn("clock steps", 7, &[HELD_AND_WAITED_FOR], budget);
    Scene { clock_steps: &[10_000, -10_000], ..scene }
}

/// The same while one client that was passed over is out of the queue and another one has the lock.
pub(super) fn clock_steps_and_a_return() -> Scene {
    let budget = Budget { starts: [3, 1, 2], beats: 2, deaf: 1, steps: 2, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS, THE_SECOND_IS_PASSED_OVER];
    let scene = in_turn("clock steps and a return", 7, before, budget);
    Scene { clients: 3, clock_steps: &[10_000, -10_000], ..scene }
}

/// The order key is deleted while two clients wait; they return when they learn of it.
pub(super) fn a_lost_order() -> Scene {
    let budget = Budget { starts: [2, 1, 1], beats: 4, losses: 1, fails: 1, ..NOTHING };
    let before = &[HELD_AND_WAITED_FOR, THE_THIRD_WAITS];
    Scene { clients: 3, ..in_turn("a lost order", 7, before, budget) }
}

/// The second has the lock, and learns of it when less than a third of its turn is left.
const THE_MESSAGE_IS_LATE: &[Move] =
    &[Move::Release(0), Move::Execute(0), Move::Hear(0), Move::Pass(5 * TICK), Move::Read(0)];

/// The second knows that it was passed over, and nobody knows what became of the request
/// with which it returns. It has sent another copy.
const ITS_RETURN_IS_NOT_ANSWERED: &[Move] = &[
    Move::Beat(1),
    Move::Execute(0),
    Move::Hear(0),
    Move::Execute(0),
    Move::Hear(0),
    Move::Fail(1, 0),
    Move::Beat(1),
    Move::Execute(1),
    Move::Hear(0),
    Move::Execute(1),
    Move::Hear(0),
];

/// As [`HELD_AND_WAITED_FOR`], of slow clients.
const SLOWLY_HELD_AND_WAITED_FOR: &[Move] = &[
    Move::Start(0),
    Move::CarryOut(0),
    Move::Execute(0),
    Move::Hear(0),
    Move::CarryOut(0),
    Move::Start(1),
    Move::CarryOut(1),
    Move::Execute(0),
    Move::Hear(0),
    Move::CarryOut(1),
];

/// D11: a grant is confirmed because little of it is left, and the confirmation is not answered.
pub(super) fn confirmation() -> Scene {
    let budget =
        Budget { starts: [1, 1, 0], fails: 2, give_ups: 1, beats: 1, refusals: 1, ..NOTHING };
    scene("confirmation", 8, &[HELD_AND_WAITED_FOR, THE_MESSAGE_IS_LATE], budget)
}

/// The copies of a request with which a waiter returns to its place.
pub(super) fn returns() -> Scene {
    let budget = Budget { starts: [1, 1, 1], fails: 2, give_ups: 1, beats: 3, deaf: 1, ..NOTHING };
    let before = &[
        HELD_AND_WAITED_FOR,
        THE_THIRD_WAITS,
        THE_SECOND_IS_PASSED_OVER,
        ITS_RETURN_IS_NOT_ANSWERED,
    ];
    Scene { clients: 3, passes: &[TICK], ..scene("returns", 8, before, budget) }
}

/// What follows from an input is done later, and other inputs come first.
pub(super) fn slow_hands() -> Scene {
    let budget =
        Budget { starts: [2, 2, 0], fails: 1, give_ups: 1, beats: 2, copies: 1, ..NOTHING };
    let scene = scene("slow hands", 8, &[SLOWLY_HELD_AND_WAITED_FOR], budget);
    Scene { slow: true, ..scene }
}

/// Connections are lost and come back.
pub(super) fn cuts() -> Scene {
    let budget =
        Budget { starts: [2, 2, 0], cuts: 2, give_ups: 1, beats: 2, refusals: 1, ..NOTHING };
    scene("cuts", 7, &[HELD_AND_WAITED_FOR], budget)
}

/// The time of callers is up while they ask and wait.
pub(super) fn timed() -> Scene {
    let budget = Budget { starts: [2, 2, 0], fails: 2, beats: 2, ..NOTHING };
    let scene = scene("timed waits", 9, &[], budget);
    Scene { patience_ms: Some(BEAT), ..scene }
}
