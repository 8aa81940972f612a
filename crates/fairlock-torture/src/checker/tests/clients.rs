//! What clients, resource and worker processes saw.

use super::*;

#[test]
fn turns_in_order_are_sound() {
    let notes = [
        granted(10, "a:1", 1),
        placed(12, "b:1"),
        placed(14, "c:1"),
        ended(20, "a:1", End::Released),
        asked_and_granted(11, 21, "b:1", 2),
        ended(22, "b:1", End::Released),
        asked_and_granted(13, 23, "c:1", 3),
        ended(24, "c:1", End::Released),
    ];
    let found = History::of(&notes).finds(&[]);
    assert_eq!((found.acquisitions, found.contended, found.ordered), (3, 2, 3));
    assert_eq!(found.times.hand_over.longest(), Duration::from_millis(1));
    assert_eq!(found.times.wait_unexplained.longest(), Duration::from_millis(2));
}

/// A note that arrives late, such as that of a stopped process, is sorted in.
#[test]
fn notes_are_judged_in_the_order_of_time() {
    let notes = [
        granted(15, "b:1", 2),
        ended(20, "b:1", End::Released),
        granted(10, "a:1", 1),
        ended(12, "a:1", End::Released),
    ];
    History::of(&notes).finds(&[]);
}

#[test]
fn i2_two_holders_are_excused_by_a_loss_of_state_only() {
    let notes = [
        granted(10, "a:1", 1),
        granted(15, "b:1", 2),
        ended(20, "a:1", End::Released),
        ended(21, "b:1", End::Released),
    ];
    let history = || History::of(&notes);
    history().finds(&["held it from"]);
    history().fault(Kind::ConnectionsKilled, 11, 14).finds(&["held it from"]);
    history().fault(Kind::TailLost, 16, 18).finds(&["held it from"]);
    assert_eq!(history().fault(Kind::TailLost, 11, 14).finds(&[]).overlaps, 1);
}

/// A hold that was lost unnoticed ends when it was last seen valid.
#[test]
fn i14_a_loss_needs_a_fault_that_explains_it() {
    let notes = [
        granted(10, "a:1", 1),
        ended(15, "a:1", End::Lost),
        granted(16, "b:1", 2),
        ended(20, "b:1", End::Released),
    ];
    let history = || History::of(&notes);
    history().finds(&["without a fault that explains it"]);
    history().fault(Kind::ConnectionsKilled, 9, 20).finds(&["without a fault"]);
    assert_eq!(history().fault(Kind::Restarted, 9, 2_000).finds(&[]).lost, 1);
    let stalled = |until| {
        let mut history = history();
        history.inputs.push(Input::Stalled { from: 9 * MS, until: until * MS });
        history
    };
    stalled(100).finds(&["without a fault"]);
    assert_eq!(stalled(200).finds(&[]).lost, 1, "as long as a short grant");
    let said = Note::Said {
        at: 21 * MS,
        lock: "fair-0".into(),
        owner: "b:1".into(),
        outcome: "Lost".into(),
    };
    History::of(&[granted(16, "b:1", 2), ended(20, "b:1", End::Released), said])
        .finds(&["b:1 had it from"]);
}

#[test]
fn i5_who_asked_later_comes_later() {
    let notes = |late: u64| {
        [
            granted(late + 10, "a:1", 1),
            placed(late + 12, "b:1"),
            ended(late + 20, "a:1", End::Released),
            granted(late + 21, "c:1", 2),
            ended(late + 22, "c:1", End::Released),
            granted(late + 23, "b:1", 3),
            ended(late + 24, "b:1", End::Released),
        ]
    };
    History::of(&notes(0)).finds(&["while b:1 stood"]);
    let near = History::of(&notes(0)).fault(Kind::ConnectionsKilled, 5, 8).finds(&[]);
    assert_eq!(near.ordered, 0, "nothing was judged");
    // Long after the fault.
    History::of(&notes(60_000)).fault(Kind::ConnectionsKilled, 5, 8).finds(&["while b:1 stood"]);
    let starved = |late| {
        let mut history = History::of(&notes(late));
        history.inputs.push(Input::Starved { from: 0, until: 1_100 * MS });
        history
    };
    assert_eq!(starved(2_000).finds(&[]).ordered, 3, "it was judged, and is explained");
    starved(60_000).finds(&["while b:1 stood"]);
}

#[test]
fn i5_who_was_asking_at_the_same_time_may_come_first() {
    let notes = [
        granted(10, "a:1", 1),
        placed(12, "b:1"),
        ended(20, "a:1", End::Released),
        asked_and_granted(11, 21, "c:1", 2),
        ended(22, "c:1", End::Released),
        granted(23, "b:1", 3),
        ended(24, "b:1", End::Released),
    ];
    History::of(&notes).finds(&[]);
}

#[test]
fn i4_tokens_rise_whatever_happens() {
    let notes = [
        granted(10, "a:1", 5),
        ended(12, "a:1", End::Released),
        granted(15, "b:1", 4),
        ended(16, "b:1", End::Released),
    ];
    History::of(&notes).fault(Kind::TailLost, 9, 20).finds(&["token 4 of b:1 came after 5"]);
    // A request sent before the other was granted may be granted after it.
    let mut at_once = notes;
    at_once[2] = asked_and_granted(9, 15, "b:1", 4);
    History::of(&at_once).finds(&[]);
}

#[test]
fn i3_the_resource_tells_on_both() {
    let wrote = |owner: &str, token, accepted, valid| {
        let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
        Note::Wrote { at: 11 * MS, lock, owner, token, accepted, valid }
    };
    let holds = [granted(10, "a:1", 1), ended(12, "a:1", End::Released)];
    let with = |note| History::of(&[&holds[..], &[note]].concat());
    with(wrote("a:1", 1, true, true)).finds(&[]);
    with(wrote("a:1", 1, false, true)).finds(&["its guard valid"]);
    assert_eq!(with(wrote("a:1", 1, false, false)).finds(&[]).fenced_off, 1);
    let both = [&holds[..], &[wrote("a:1", 1, true, true), wrote("b:1", 1, true, true)]].concat();
    History::of(&both).fault(Kind::TailLost, 9, 20).finds(&["both have token 1"]);
}

#[test]
fn l2_a_lock_that_is_waited_for_is_handed_over_soon() {
    let notes = |gap: u64| {
        [
            granted(10, "a:1", 1),
            placed(12, "b:1"),
            ended(20, "a:1", End::Released),
            asked_and_granted(11, 20 + gap, "b:1", 2),
            ended(21 + gap, "b:1", End::Released),
        ]
    };
    History::of(&notes(1_900)).finds(&[]);
    History::of(&notes(2_100)).finds(&["the next one got it 2100 ms later"]);
    History::of(&notes(2_100)).fault(Kind::InboxesKilled, 19, 21).finds(&[]);
}

#[test]
fn l1_nobody_is_left_behind() {
    History::of(&[placed(10, "a:1")]).finds(&["never served"]);
    let mut dead = History::of(&[placed(10, "a:1"), granted(11, "b:1", 1)]);
    dead.inputs.push(Input::Killed { worker: 1, at: 20 * MS });
    for note in [granted(25, "c:1", 2), ended(26, "c:1", End::Released)] {
        dead.inputs.push(Input::Note { worker: 2, note });
    }
    // Placed at the moment of the kill.
    dead.inputs.push(Input::Note { worker: 1, note: placed(21, "a:2") });
    dead.finds(&[]);
}

#[test]
fn l1_a_process_that_hangs_is_found() {
    let mut checker = Checker::new(LEASE, false);
    checker.hear(Input::Gone { worker: 3 });
    assert_eq!(checker.finish().violations, ["worker process 3 did not end its last turns"]);
}

#[test]
fn errors_are_those_of_a_store_that_is_away() {
    let failed = |kind: &str| {
        History::of(&[Note::Failed { at: 10 * MS, lock: "fair-0".into(), kind: kind.into() }])
    };
    failed("Unavailable").finds(&[]);
    failed("Protocol").finds(&["failed with Protocol"]);
    failed("WrongType").finds(&["failed with WrongType"]);
    failed("WrongType").fault(Kind::LockOverwritten, 1, 9).finds(&[]);
    // The explicit lease expired twice before the guard could be handed out: a long stall.
    failed("LeaseTooShort").finds(&["failed with LeaseTooShort"]);
    failed("LeaseTooShort")
        .fault(Kind::WorkerStopped, 1, 900)
        .finds(&["failed with LeaseTooShort"]);
    failed("LeaseTooShort").fault(Kind::WorkerStopped, 1, 2_000).finds(&[]);
}

fn shared(at: u64, owner: &str, token: u64, share: Share) -> Note {
    let Note::Granted { at, asked, owner, token, valid_until, .. } = granted(at, owner, token)
    else {
        unreachable!()
    };
    Note::Granted { at, asked, lock: "fair-0".to_owned(), owner, token, valid_until, share }
}

/// Readers are beside readers, under one token. A writer is beside nobody, and has a larger one.
#[test]
fn readers_and_writers() {
    let read = |at, owner, token| shared(at, owner, token, Share::Read);
    let both = [read(10, "a", 1), read(12, "b", 1), ended(20, "a", End::Released)];
    let done = [ended(21, "b", End::Released)];
    History::of(
        &[&both[..], &done, &[granted(22, "c", 2), ended(23, "c", End::Released)]].concat(),
    )
    .finds(&[]);
    let early = [granted(15, "c", 2), ended(30, "c", End::Released)];
    History::of(&[&both[..], &early, &done].concat()).finds(&["and b from", "and a from"]);
    // A reader may hear of its grant before one that came earlier, and before no writer.
    let placed = |at, owner, share| match placed(at, owner) {
        Note::Placed { at, asked, lock, owner, .. } => {
            Note::Placed { at, asked, lock, owner, share }
        }
        other => other,
    };
    for (share, wanted) in [(Share::Read, 0), (Share::Whole, 1)] {
        let late = [shared(12, "d", 3, share), ended(13, "d", End::Released)];
        let before = [placed(5, "d", share), placed(7, "e", Share::Read)];
        let early = [shared(10, "e", 3, Share::Read), ended(11, "e", End::Released)];
        let found = History::of(&[&before[..], &early, &late].concat()).checked();
        let passed = found.violations.iter().filter(|it| it.contains("stood in the queue"));
        assert_eq!(passed.count(), wanted);
    }
    let same = [granted(22, "c", 1), ended(23, "c", End::Released)];
    History::of(&[&both[..], &done, &same].concat()).finds(&["token 1 of c came after 1"]);
}

/// A failover brings back a time of reading that was over; who joins it has its token, which is smaller than that of
/// the writer whom the new master does not know. Without a failover tokens do not fall, nor do a writer's after one.
#[test]
fn readers_may_have_a_token_again_that_a_failover_brought_back() {
    let turns = |share| {
        History::of(&[
            shared(10, "a", 1, Share::Read),
            ended(11, "a", End::Released),
            shared(20, "b", 2, Share::Whole),
            ended(21, "b", End::Released),
            shared(40, "c", 1, share),
            ended(41, "c", End::Released),
        ])
    };
    turns(Share::Read).finds(&["token 1 of c came after 2"]);
    turns(Share::Read).fault(Kind::MasterKilled, 25, 30).finds(&[]);
    turns(Share::Read).fault(Kind::AgreedFailover, 25, 30).finds(&["came after 2"]);
    turns(Share::Read).fault(Kind::MasterKilled, 12, 15).finds(&["came after 2"]);
    turns(Share::Whole).fault(Kind::MasterKilled, 25, 30).finds(&["came after 2"]);
}

#[test]
fn no_more_permits_than_the_limit() {
    let permits = |at, owner, token, n| {
        let limit = crate::wanted::LIMIT;
        shared(at, owner, token, Share::Permits { n, limit })
    };
    let fits = [permits(10, "a", 1, 2), permits(11, "b", 2, 2), ended(20, "a", End::Released)];
    let next = [permits(21, "c", 3, 2), ended(30, "b", End::Released)];
    let last = [ended(31, "c", End::Released)];
    History::of(&[&fits[..], &next, &last].concat()).finds(&[]);
    let early = [permits(19, "c", 3, 2), ended(30, "b", End::Released)];
    let too_many = || History::of(&[&fits[..], &early, &last].concat());
    too_many().finds(&["b from 11000000 to 30000000, a from 10000000 to 20000000"]);
    // What took the first away explains that the last came, and not only beside the first.
    too_many().fault(Kind::LockDeleted, 12, 13).finds(&[]);
}
