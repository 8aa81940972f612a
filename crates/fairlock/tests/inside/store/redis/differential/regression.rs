//! Differences that the random histories found, each reduced to a short run, with its story.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, owner, run};
use super::step::{End, Fault, JavaAct, Member, Named, Place, Plan, Step, Who};
use fairlock_core::{Kind, MAX_LEASE_MS, MENDED_MAX, Mode, OwnerId, Rules, Snapshot};
use fairlock_testkit::server::Generation;

#[track_caller]
fn agree(rules: Rules, steps: &[Step]) {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let plan = Plan { rules, steps: steps.to_vec() };
    if let Err(mismatch) = run(&mut fixture, &plan, &mut Seen::new()) {
        panic!("step {}: {}", mismatch.at, mismatch.story);
    }
}

fn acquire(owner: u64, mode: Mode, place: Place) -> Step {
    Step::acquire(owner, mode, place, false)
}

const BACK: Place = Place::Ago(5_000_000);

/// A returning entry whose inbox had no subscriber reached the head of the queue in its own call.
/// It was judged by that inbox, removed, and then told that it was queued, but under no number: on
/// Redis a reply that could not be decoded. An entry's own call proves that it is alive.
#[test]
fn an_acquire_never_removes_its_own_caller() {
    agree(
        Rules { java_fleet: true, ..Rules::default() },
        &[
            acquire(3, Mode::Wait, BACK),
            Step::Time(68_000_000),
            Step::Renew { kind: Kind::Fair, who: Who::Holder, token: Named::Last, ttl_ms: 30_000 },
            acquire(0, Mode::Wait, BACK),
        ],
    );
}

/// A heartbeat that was carried out after its client's last waiter had left stored the beat for a
/// minute, although nobody waited: the cancellation driver found a leftover key.
#[test]
fn a_heartbeat_after_everybody_left_leaves_nothing() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let steps = [Step::Beat { client: 1, waiters: vec![1] }];
    fixture.reset(START_US);
    let mut seen = Seen::new();
    let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
    for step in &steps {
        run.step(step).unwrap();
    }
    assert_eq!(*run.core().snapshot(), Snapshot::default());
}

/// D33: a heartbeat gave each of a million foreign entries a score, and the server did nothing else
/// for 11 s. A queue above a bound is now left as it is, on both sides alike.
#[test]
fn d33_a_queue_is_mended_up_to_a_bound() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for (members, mended) in [(MENDED_MAX, true), (MENDED_MAX + 1, false)] {
        fixture.reset(START_US);
        let queue = (0..members).map(|n| OwnerId::parse(format!("stranger:{n}").as_bytes()));
        let start = Snapshot { queue: queue.collect(), ..Snapshot::default() };
        fixture.write(&start);
        let mut seen = Seen::new();
        let mut run = Run::new(&mut fixture, Rules::default(), start, &mut seen);
        run.step(&Step::Beat { client: 1, waiters: vec![1] }).unwrap();
        assert_eq!(run.core().snapshot().scores.len() == members, mended);
    }
}

/// The clock jumps by more than the records live, and a new waiter arrives. The earlier waiters
/// have inboxes and are not judged by their old scores and TTLs. The core's part is
/// `silences::d08_after_a_jump_of_the_clock_...`.
#[test]
fn d08_a_jump_of_the_clock_removes_nobody_who_has_an_inbox() {
    let inbox = |client| Step::Inbox { client, on: true };
    let here = |owner| acquire(owner, Mode::Wait, Place::New);
    // The head has the score of its last heartbeat.
    let beat = || Step::Beat { client: 1, waiters: vec![1] };
    agree(
        Rules::default(),
        &[
            inbox(0),
            inbox(1),
            inbox(2),
            here(0),
            here(1),
            beat(),
            Step::Time(2_000_000),
            beat(),
            Step::Time(70_000_000),
            here(2),
        ],
    );
}

/// `LRANGE 0 -1` is the whole list, so an `Inspect` with a limit of 0 listed all waiters.
#[test]
fn inspecting_no_waiters_lists_none() {
    agree(
        Rules::default(),
        &[
            acquire(2, Mode::Wait, Place::New),
            acquire(1, Mode::Wait, Place::New),
            Step::Inspect { kind: Kind::Fair, limit: 0 },
            Step::Inspect { kind: Kind::Fair, limit: 1 },
        ],
    );
}

/// Foreign members count for a place; of two entries of one owner the first counts; an owner that
/// holds the lock, or never waited, has no place.
#[test]
fn a_place_is_counted_from_the_head() {
    let place = |member| Step::Place { member };
    agree(
        Rules::default(),
        &[
            acquire(2, Mode::Wait, Place::New),
            Step::Java { waiter: 0, act: JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 } },
            acquire(1, Mode::Wait, Place::New),
            place(Member::Ours(2)),
            place(Member::Java(0)),
            place(Member::Ours(1)),
            place(Member::Ours(3)),
            Step::Meddle(Fault::ListTwice(Member::Ours(1), End::Head)),
            place(Member::Ours(1)),
            place(Member::Odd),
        ],
    );
}

/// A hold with 0 ms left is still held. The number of its change was stored in a key with the same
/// expiry, which deletes the key at once, so a late copy of an older change would have counted.
#[test]
fn a_change_in_the_last_millisecond_of_a_hold_keeps_its_number() {
    agree(
        Rules::default(),
        &[
            acquire(2, Mode::Wait, Place::New),
            Step::Renew { kind: Kind::Fair, who: Who::Holder, token: Named::Last, ttl_ms: 1 },
            Step::Time(1_000),
            Step::Release {
                kind: Kind::Fair,
                who: Who::Holder,
                token: Named::Last,
                keep: 1,
                change: 1,
            },
            Step::Renew { kind: Kind::Fair, who: Who::Holder, token: Named::Last, ttl_ms: 30_000 },
            Step::Reenter { who: Who::Holder, token: Named::Last, count: 3, change: 0 },
        ],
    );
}

/// Others may write any hold count; the reply must still be a count, or say that there is none.
#[test]
fn an_odd_hold_count_can_be_shown() {
    for count in [-1, 0, 1, 2_147_483_647, 2_147_483_648, 4_294_967_296] {
        let mut again = acquire(2, Mode::Wait, Place::New);
        let Step::Acquire { request, shared, .. } = &mut again else { unreachable!() };
        (*request, *shared) = (1, true);
        agree(
            Rules::default(),
            &[
                acquire(2, Mode::Try, Place::New),
                Step::Meddle(Fault::Count(count)),
                Step::Inspect { kind: Kind::Fair, limit: 100 },
                again,
            ],
        );
    }
}

/// A plain lock has no queue, but the core removed the same owner's entry from the fair queue.
#[test]
fn leaving_a_plain_lock_leaves_the_queue_alone() {
    agree(
        Rules { presence: false, ..Rules::default() },
        &[
            acquire(0, Mode::Wait, BACK),
            Step::Leave {
                kind: Kind::Plain,
                who: Who::Owner(0),
                request: 0,
                bury: true,
                shared: false,
            },
        ],
    );
}

/// An owner that waits in the fair queue takes the plain lock of the same name: its users mixed two
/// kinds, which may surprise them but must not violate one of our assertions.
#[test]
fn a_waiter_may_take_the_plain_lock_of_the_same_name() {
    let mut plain = acquire(1, Mode::Try, Place::New);
    let Step::Acquire { kind, .. } = &mut plain else { unreachable!() };
    *kind = Kind::Plain;
    agree(
        Rules::default(),
        &[acquire(1, Mode::Wait, BACK), plain, Step::Force { kind: Kind::Fair }],
    );
}

/// The last member with a score left, and a Java head without one got a score: the set was new on
/// the server and so had no TTL, while the list still had a day to live.
#[test]
fn a_new_score_set_ends_with_the_list() {
    agree(
        Rules::default(),
        &[
            acquire(1, Mode::Wait, Place::New),
            acquire(0, Mode::Wait, Place::New),
            Step::RoundTime(1_000_000_000),
            Step::Meddle(Fault::ListOnly(Member::Java(2), End::Tail)),
            Step::Leave {
                kind: Kind::Fair,
                who: Who::Owner(0),
                request: 0,
                bury: false,
                shared: true,
            },
        ],
    );
}

/// Two waiters returned with the same order number, followed by a third. Either order of the two is
/// right, and it must not violate one of our assertions.
#[test]
fn equal_order_numbers_are_borne() {
    agree(
        Rules { presence: false, ..Rules::default() },
        &[
            acquire(0, Mode::Wait, BACK),
            acquire(3, Mode::Wait, BACK),
            Step::Time(400),
            acquire(2, Mode::Wait, BACK),
            Step::Beat { client: 0, waiters: vec![0, 3] },
        ],
    );
}

/// An operator removed the TTL of one of our keys: no assertion is violated, and the next beat
/// restores the TTL.
#[test]
fn a_key_without_a_ttl_is_borne_and_mended() {
    agree(
        Rules::default(),
        &[
            acquire(2, Mode::Wait, Place::New),
            Step::Meddle(Fault::BeatAt(1, -70_000)),
            Step::Leave {
                kind: Kind::Fair,
                who: Who::Holder,
                request: 0,
                bury: true,
                shared: true,
            },
            Step::Beat { client: 0, waiters: vec![0] },
        ],
    );
}

/// Java, which does not know our order numbers, dropped a stale head of ours. Its number stayed and
/// counted as a waiter, so a foreign waiter went uncounted, and the beats of the waiters behind
/// kept their scores too low by its allowance. The Java client's own acquire then subtracted the
/// allowance, and those waiters were dropped alive.
#[test]
fn a_head_that_java_dropped_hides_no_foreign_waiter() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    let rules = Rules { presence: false, ..Rules::default() };
    let wait = JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 };
    let mut seen = Seen::new();
    let mut run = Run::new(&mut fixture, rules.clone(), Snapshot::default(), &mut seen);
    for step in [
        acquire(0, Mode::Wait, Place::New),
        acquire(3, Mode::Wait, Place::New),
        Step::Java { waiter: 0, act: wait },
        acquire(1, Mode::Wait, Place::New),
        Step::Meddle(Fault::ScoreAt(Member::Ours(3), -1)),
        Step::Java { waiter: 0, act: wait },
        Step::Time(20_000_000),
        Step::Beat { client: 1, waiters: vec![1] },
    ] {
        run.step(&step).unwrap_or_else(|story| panic!("{step:?}: {story}"));
    }
    let keys = run.core().snapshot();
    assert!(!keys.queue.contains(&owner(3)), "Java must have dropped it: {keys:#?}");
    let allowed = keys.scores[&owner(1)] - (START_US / 1_000 + 20_000) as i64;
    assert_eq!(allowed, 600_000, "its own allowance and that of the Java waiter ahead");
}

/// A Java client whose clock is behind enters with a score that has already passed. While it
/// listens it is notified, and spared for as long as a head without a subscriber; then it is
/// dropped, and our waiter behind it gets the lock.
#[test]
fn a_stale_java_head_that_listens_is_spared_for_a_while() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    let rules = Rules { presence: false, ..Rules::default() };
    let wait = JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 };
    let mut seen = Seen::new();
    let mut run = Run::new(&mut fixture, rules, Snapshot::default(), &mut seen);
    let stale = |k: &Snapshot| k.queue.iter().any(|owner| !owner.is_ours());
    for (step, is_spared) in [
        (acquire(0, Mode::Wait, Place::New), false),
        (Step::Java { waiter: 0, act: wait }, true),
        (Step::JavaListens { waiter: 0, on: true }, true),
        (acquire(1, Mode::Wait, Place::New), true),
        (Step::Meddle(Fault::ScoreAt(Member::Java(0), -1)), true),
        (Step::Force { kind: Kind::Fair }, true),
        (Step::Time(3_000_000), true),
        (Step::Beat { client: 1, waiters: vec![1] }, true),
        (Step::Time(4_999_000), true),
        (Step::Beat { client: 1, waiters: vec![1] }, true),
        (Step::Time(1_000), true),
        (Step::Beat { client: 1, waiters: vec![1] }, false),
    ] {
        run.step(&step).unwrap_or_else(|story| panic!("{step:?}: {story}"));
        assert_eq!(stale(run.core().snapshot()), is_spared, "{step:?}");
    }
    assert!(run.core().snapshot().hold.contains_key(&owner(1)));
}

/// The score of owner 1 after these steps, in milliseconds from the start, as core and Lua have it.
#[track_caller]
fn score_of_1(rules: Rules, steps: &[Step]) -> Option<i64> {
    let mut fixture = Fixture::start(Generation::Redis70)?;
    fixture.reset(START_US);
    let mut seen = Seen::new();
    let mut run = Run::new(&mut fixture, rules, Snapshot::default(), &mut seen);
    for step in steps {
        run.step(step).unwrap_or_else(|story| panic!("{step:?}: {story}"));
    }
    Some(run.core().snapshot().scores[&owner(1)] - (START_US / 1_000) as i64)
}

/// Each heartbeat raised a waiter's score by the fair wait of every Java thread in the queue,
/// including those behind it. When the waiter died, Java had to wait that long: 20 minutes with
/// three threads, longer than their own scores lasted, so they were dropped alive. Now only the
/// threads ahead count; and once the waiter's score from its entry is used up, it stays 30 s above
/// theirs.
#[test]
fn java_behind_a_waiter_of_ours_does_not_raise_its_score() {
    let java = |waiter| Step::Java {
        waiter,
        act: JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 },
    };
    let hour = 3_600_000;
    let mut steps = vec![
        acquire(0, Mode::Wait, Place::New),
        java(0),
        acquire(1, Mode::Wait, Place::New),
        java(1),
        java(2),
        Step::Renew { kind: Kind::Fair, who: Who::Holder, token: Named::Last, ttl_ms: hour },
    ];
    let beat = [Step::Time(20_000_000), Step::Beat { client: 1, waiters: vec![1] }];
    steps.extend(beat.clone());
    let rules = Rules { presence: false, ..Rules::default() };
    let Some(score) = score_of_1(rules.clone(), &steps) else { return };
    assert_eq!(score, 600_000, "what it had on entry");
    for _ in 0..20 {
        steps.extend(beat.clone());
    }
    assert_eq!(score_of_1(rules, &steps), Some(420_000 + 300_000 + 30_000));
}

/// The same for a waiter that returns to its place: its score included the fair wait of those
/// behind it.
#[test]
fn java_behind_a_waiter_that_returns_does_not_raise_its_score() {
    let java = |waiter| Step::Java {
        waiter,
        act: JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 },
    };
    let steps =
        [acquire(0, Mode::Wait, Place::New), java(0), java(1), acquire(1, Mode::Wait, BACK)];
    let rules = Rules { presence: false, ..Rules::default() };
    let Some(score) = score_of_1(rules, &steps) else { return };
    assert_eq!(score, 300_000, "it stands in front");
}

/// A dead Java head costs the fair wait. A dead head of ours costs 30 s, or the fair wait if that
/// is shorter.
#[test]
fn a_head_of_ours_is_waited_for_no_longer_than_the_fair_wait() {
    for (fair_wait_ms, ahead_ms) in [(300_000, 30_000), (8_000, 8_000), (1_000, 6_000)] {
        let steps = [
            acquire(0, Mode::Wait, Place::New),
            acquire(1, Mode::Wait, Place::New),
            Step::Time(1_000_000),
            Step::Beat { client: 1, waiters: vec![1] },
        ];
        let rules = Rules { presence: false, fair_wait_ms, ..Rules::default() };
        let Some(score) = score_of_1(rules, &steps) else { return };
        assert_eq!(score, 1_000 + ahead_ms, "fair wait {fair_wait_ms} ms");
    }
}

/// Exactly as many dead waiters as one call examines, and nobody behind them: the queue is then
/// empty, and a `Try` may take the lock. The core neither granted it nor said MORE.
#[test]
fn a_queue_that_one_call_just_empties_is_empty() {
    for size in [63, 64, 65] {
        agree(
            Rules { presence: false, ..Rules::default() },
            &[Step::Meddle(Fault::Crowd(size)), acquire(0, Mode::Try, Place::New), Step::Nudge],
        );
    }
}

/// The lock's only record belonged to an entry that returns. The state is deleted and created anew
/// in between, so it must not keep its former longer TTL, although the lock is held for years.
#[test]
fn a_state_that_is_made_anew_has_a_new_ttl() {
    agree(
        Rules::default(),
        &[
            acquire(0, Mode::Wait, Place::New),
            acquire(5, Mode::Wait, Place::New),
            Step::Renew {
                kind: Kind::Fair,
                who: Who::Holder,
                token: Named::Last,
                ttl_ms: MAX_LEASE_MS,
            },
            Step::Time(68_000_000),
            acquire(5, Mode::Wait, Place::Old),
        ],
    );
}

/// The state after `steps`, on which server and core agree.
fn after(steps: &[Step]) -> Option<Snapshot> {
    let mut fixture = Fixture::start(Generation::Redis70)?;
    fixture.reset(START_US);
    let mut seen = Seen::new();
    let rules = Rules { presence: false, ..Rules::default() };
    let mut run = Run::new(&mut fixture, rules, Snapshot::default(), &mut seen);
    for step in steps {
        run.step(step).unwrap_or_else(|story| panic!("{step:?}: {story}"));
    }
    Some(run.core().snapshot().clone())
}

/// The clock goes back while no queued waiter has a number: the exploration found that the next
/// waiter got a smaller number than one that was out of the queue at that moment.
#[test]
fn numbers_go_on_when_the_clock_goes_back() {
    let steps = [
        acquire(0, Mode::Wait, Place::New),
        acquire(1, Mode::Wait, Place::New),
        Step::Leave {
            kind: Kind::Fair,
            who: Who::Owner(1),
            request: 0,
            bury: false,
            shared: false,
        },
        Step::Time(-3_600_000_000),
        acquire(2, Mode::Wait, Place::New),
        acquire(3, Mode::Wait, Place::New),
    ];
    let Some(keys) = after(&steps) else { return };
    assert_eq!(keys.order[&owner(2)], START_US + 1);
    assert_eq!((keys.order[&owner(3)], keys.record.given), (START_US + 2, Some(START_US + 2)));
}

/// The order key is deleted. A returning waiter keeps its place, even if it is listed twice.
#[test]
fn who_stands_in_the_list_without_a_number_stays_there() {
    let twice = Step::Meddle(Fault::ListTwice(Member::Ours(2), End::Tail));
    for twice in [None, Some(twice)] {
        let mut steps = vec![
            acquire(0, Mode::Wait, Place::New),
            acquire(1, Mode::Wait, Place::New),
            acquire(2, Mode::Wait, Place::New),
            acquire(3, Mode::Wait, Place::New),
            Step::Meddle(Fault::Delete(4)),
        ];
        steps.extend(twice.clone());
        steps.extend([2, 3, 1].map(|number| acquire(number, Mode::Wait, Place::Old)));
        let Some(keys) = after(&steps) else { return };
        assert_eq!(keys.queue, [1, 2, 3].map(owner), "the first of its entries counts");
    }
}

/// A foreign waiter with an endless score made ours behind it endless, which no client can wait for.
#[test]
fn nobody_inherits_an_endless_score() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for long_way in [false, true] {
        fixture.reset(START_US);
        fixture.long_way = long_way;
        let mut seen = Seen::new();
        let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
        for n in 0..2 {
            run.step(&acquire(n, Mode::Wait, Place::New)).unwrap();
        }
        run.fixture.raw.call(&["RPUSH", "redisson_lock_queue:{job}", "java:1"]);
        run.fixture.raw.call(&["ZADD", "redisson_lock_timeout:{job}", "inf", "java:1"]);
        let op = run.resolve(&acquire(4, Mode::Wait, Place::New));
        run.call(&op).unwrap();
        let owner = owner(4).to_string();
        let score = run.fixture.raw.call(&["ZSCORE", "redisson_lock_timeout:{job}", &owner]);
        assert_eq!(score.text().parse::<f64>(), Ok(9e15), "long way {long_way}");
    }
}
