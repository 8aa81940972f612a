//! Scenes of locks that several may hold: readers and a writer, permits, a writer that reads on, and two limits.

use super::scenes::{NOTHING, scene};
use super::{Before, Budget, Move, Scene, finds, nothing_wrong};
use crate::client::Flaw;
use fairlock_core::Share;

const fn permits(n: u32, limit: u32) -> Option<Share> {
    Some(Share::Permits { n, limit })
}

const WRITES: Option<Share> = Some(Share::Whole);
const READS: Option<Share> = Some(Share::Read);

/// The first client has its share, and knows it.
const HELD: &[Move] = &[Move::Start(0), Move::Execute(0), Move::Hear(0)];

/// The second knows that it waits.
const THE_SECOND_WAITS: &[Move] = &[Move::Start(1), Move::Execute(0), Move::Hear(0)];

/// So does the third.
const THE_THIRD_WAITS: &[Move] = &[Move::Start(2), Move::Execute(0), Move::Hear(0)];

fn shared(
    name: &'static str,
    depth: usize,
    shares: [Option<Share>; 3],
    before: Before,
    budget: Budget,
) -> Scene {
    Scene { clients: 3, shares, sample: 8, ..scene(name, depth, before, budget) }
}

/// A writer hands over to two readers, one of which dies anywhere.
fn a_cohort() -> Scene {
    let budget = Budget { starts: [2, 1, 1], beats: 2, crashes: 1, ..NOTHING };
    let before: Before = &[HELD, THE_SECOND_WAITS, THE_THIRD_WAITS];
    shared("a cohort", 8, [WRITES, READS, READS], before, budget)
}

/// A writer waits between two readers; anybody may give up, and calls have no answer.
fn between_readers() -> Scene {
    let budget = Budget { starts: [1, 1, 1], fails: 1, give_ups: 2, beats: 1, ..NOTHING };
    let before: Before = &[HELD, THE_SECOND_WAITS];
    shared("between readers", 8, [READS, WRITES, READS], before, budget)
}

/// Two permits: wants of 1, 2 and 2, and one dies anywhere.
fn two_permits() -> Scene {
    let budget = Budget { starts: [2, 1, 1], fails: 1, beats: 1, crashes: 1, ..NOTHING };
    let shares = [permits(1, 2), permits(2, 2), permits(2, 2)];
    shared("two permits", 8, shares, &[HELD, THE_SECOND_WAITS], budget)
}

/// Two limits: the first and the third bear three in use, the second only two.
fn two_limits() -> Scene {
    let budget = Budget { starts: [2, 1, 1], fails: 1, give_ups: 1, beats: 1, ..NOTHING };
    let shares = [permits(1, 3), permits(2, 2), permits(2, 3)];
    shared("two limits", 8, shares, &[HELD, THE_SECOND_WAITS], budget)
}

/// A writer reads on, and copies of that come late.
fn a_downgrade() -> Scene {
    let budget = Budget { starts: [1, 1, 1], fails: 2, beats: 1, downgrades: 1, ..NOTHING };
    shared("a downgrade", 8, [WRITES, READS, WRITES], &[HELD, THE_SECOND_WAITS], budget)
}

/// D45: an owner reads again while another goes on reading, so its holds have one token. Copies of its releases and
/// renewals come late.
fn an_owner_reads_again() -> Scene {
    let budget = Budget { starts: [2, 1, 0], late: 1, ..NOTHING };
    let before: Before = &[HELD, THE_SECOND_WAITS];
    let scene = shared("an owner reads again", 9, [READS, READS, None], before, budget);
    Scene { clients: 2, one_owner: true, ..scene }
}

/// A writer reads on, and writes again as the same owner. Copies of its downgrade come late as well.
fn an_owner_writes_again() -> Scene {
    let budget = Budget { starts: [2, 1, 0], late: 1, downgrades: 1, ..NOTHING };
    let scene = shared("an owner writes again", 8, [WRITES, READS, None], &[HELD], budget);
    Scene { clients: 2, one_owner: true, ..scene }
}

#[test]
fn an_owner_reads_again_and_copies_of_its_calls_come_late() {
    nothing_wrong(&an_owner_reads_again(), [264_836, 1_119_035]);
}

#[test]
fn an_owner_writes_again_and_copies_of_its_calls_come_late() {
    nothing_wrong(&an_owner_writes_again(), [85_366, 390_321]);
}

#[test]
fn a_writer_hands_over_to_readers_of_whom_one_dies() {
    nothing_wrong(&a_cohort(), [133_870, 676_247]);
}

#[test]
fn a_writer_waits_between_readers() {
    nothing_wrong(&between_readers(), [200_586, 1_046_984]);
}

#[test]
fn permits_are_wanted_by_more_than_there_are() {
    nothing_wrong(&two_permits(), [163_731, 830_222]);
}

#[test]
fn limits_differ() {
    nothing_wrong(&two_limits(), [254_817, 1_410_575]);
}

#[test]
fn a_writer_reads_on() {
    nothing_wrong(&a_downgrade(), [180_710, 949_852]);
}

#[test]
fn broken_rules_of_shares_are_noticed() {
    finds(Flaw::NoLeave, between_readers());
    finds(Flaw::NoBury, between_readers());
}
