//! Every small queue that lost keys, operators and dead clients can leave behind (F38): both sides
//! agree on the effect of the next operation, and a live waiter of ours gets the lock soon.
//! `FAIRLOCK_DIFF_MEMBERS` sets the length of the longest queue.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, client, owner, request};
use super::step::{JavaAct, Step};
use fairlock_core::{
    Acquire, Body, Kind, Mode, Op, OwnerId, Rules, Snapshot, SnapshotWaiter, Token,
};
use fairlock_testkit::server::Generation;

/// Members of the longest queue: 3 takes seconds, 4 a minute or two.
const MEMBERS: usize = 3;

/// The same for the other generations, which run the same scripts.
const MEMBERS_ELSEWHERE: usize = 2;

/// When everything begins, in milliseconds.
const START_MS: u64 = START_US / 1_000;

/// Heartbeats (2 s) until a live waiter of ours must have had the lock: the initial hold ends
/// within the second one, each member may take 8 s (the patience with a Java head without a
/// subscriber; D for an entry without a record is less), and one more to notice.
const fn rounds_max(members: usize) -> usize {
    3 + 4 * members
}

/// The content of one place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Live,
    Dead,
    WithoutRecord,
    JavaLive,
    JavaWithoutScore,
    /// The same owner as the member before.
    Again,
}

const MEMBER_KINDS: [Member; 6] = [
    Member::Live,
    Member::Dead,
    Member::WithoutRecord,
    Member::JavaLive,
    Member::JavaWithoutScore,
    Member::Again,
];

/// Who holds the lock at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Ours,
    /// An owner that is also queued.
    Queued,
}

/// The first operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Beat,
    Nudge,
    Release,
    Acquire,
}

#[derive(Clone, Debug)]
struct Case {
    members: Vec<Member>,
    /// A member of the scores that is not in the list.
    score_only: bool,
    /// An order number and nothing else.
    order_only: bool,
    holder: Holder,
    first: First,
}

/// Owners 0, 3 and so on belong to client 0, which lives; those of client 1 are dead.
fn live(place: usize) -> OwnerId {
    OwnerId::ours(client(0), 1 + place as u64).expect("a legal number")
}

fn dead(place: usize) -> OwnerId {
    OwnerId::ours(client(1), 1 + place as u64).expect("a legal number")
}

fn holder() -> OwnerId {
    OwnerId::ours(client(2), 9).expect("a legal number")
}

fn cases(members_max: usize) -> Vec<Case> {
    let mut queues: Vec<Vec<Member>> = vec![vec![]];
    let mut from = 0;
    for _ in 0..members_max {
        let to = queues.len();
        for at in from..to {
            for kind in MEMBER_KINDS {
                if kind == Member::Again && queues[at].is_empty() {
                    continue;
                }
                let longer = queues[at].iter().copied().chain([kind]).collect();
                queues.push(longer);
            }
        }
        from = to;
    }
    let mut cases = Vec::new();
    for members in queues {
        for (score_only, order_only) in [(false, false), (true, false), (false, true), (true, true)]
        {
            for holder in [Holder::Nobody, Holder::Ours, Holder::Queued] {
                for first in [First::Beat, First::Nudge, First::Release, First::Acquire] {
                    let members = members.clone();
                    cases.push(Case { members, score_only, order_only, holder, first });
                }
            }
        }
    }
    cases
}

/// The starting state, and our live waiters.
fn start(case: &Case, java: &[OwnerId; 4]) -> (Snapshot, Vec<OwnerId>) {
    let mut s = Snapshot::default();
    let mut waiting = Vec::new();
    for (place, member) in case.members.iter().enumerate() {
        let id = match member {
            Member::Live => live(place),
            Member::Dead | Member::WithoutRecord => dead(place),
            Member::JavaLive | Member::JavaWithoutScore => java[place].clone(),
            Member::Again => s.queue.back().expect("not the first").clone(),
        };
        s.queue.push_back(id.clone());
        if *member == Member::Again {
            continue;
        }
        if *member != Member::JavaWithoutScore {
            s.scores.insert(id.clone(), (START_MS + 300_000 + place as u64) as i64);
        }
        if matches!(member, Member::Live | Member::Dead) {
            let request = request(7, place as u64);
            s.order.insert(id.clone(), START_US - 1_000_000 + place as u64);
            s.waiters.insert(id.clone(), SnapshotWaiter { request, lease_ms: 30_000, sure: false });
        }
        if *member == Member::Live {
            waiting.push(id);
        }
    }
    if case.score_only {
        s.scores.insert(OwnerId::parse(b"nowhere:1"), (START_MS + 90_000) as i64);
    }
    if case.order_only {
        s.order.insert(dead(20), START_US - 2_000_000);
    }
    let holds = match case.holder {
        Holder::Nobody => None,
        Holder::Ours => Some(holder()),
        Holder::Queued => Some(s.queue.front().cloned().unwrap_or_else(holder)),
    };
    if let Some(id) = holds {
        s.hold.insert(id, 1);
        s.hold_expires = Some(START_MS + 3_000);
        s.token = Some(START_US - 5);
    }
    s.beats.insert(client(0), START_MS - 100);
    s.beats.insert(client(1), START_MS - 7_000);
    for (expires, exists) in [
        (&mut s.order_expires, !s.order.is_empty()),
        (&mut s.state_expires, !s.waiters.is_empty()),
        (&mut s.beats_expires, true),
    ] {
        *expires = exists.then_some(START_MS + 50_000);
    }
    (s, waiting)
}

fn first(case: &Case, s: &Snapshot, waiting: &[OwnerId]) -> Op {
    let holds = s.hold.keys().next().cloned().unwrap_or_else(holder);
    match case.first {
        First::Beat => Op::Beat { client: client(0), waiters: waiting.to_vec() },
        First::Nudge => Op::Nudge,
        First::Release => Op::Release {
            kind: Kind::Fair,
            owner: holds,
            token: Token::new(s.token.unwrap_or(1)).expect("a token"),
            keep: 0,
            change: 1,
        },
        First::Acquire => Op::Acquire(Acquire {
            kind: Kind::Fair,
            owner: owner(5),
            request: request(5, 0),
            lease_ms: 1_000,
            mode: Mode::Wait,
            order: None,
            not_after_ms: START_MS,
            sure: true,
            shared_owner: false,
        }),
    }
}

fn returns(owner: &OwnerId, now_ms: u64) -> Op {
    let place = (0..u64::MAX).find(|place| live(*place as usize) == *owner).expect("a live one");
    Op::Acquire(Acquire {
        kind: Kind::Fair,
        owner: owner.clone(),
        request: request(7, place),
        lease_ms: 30_000,
        mode: Mode::Wait,
        order: Some(START_US - 1_000_000 + place),
        not_after_ms: now_ms,
        sure: true,
        shared_owner: false,
    })
}

/// Plays a case.
///
/// # Errors
/// If the sides differ, or no live waiter gets the lock.
fn live_through(fixture: &mut Fixture, case: &Case) -> Result<(), String> {
    fixture.reset(START_US);
    fixture.inbox(client(0), true);
    let mut seen = Seen::new();
    let (mut s, waiting) = {
        let run = Run::new(fixture, Rules::default(), Snapshot::default(), &mut seen);
        start(case, &[0, 1, 2, 3].map(|waiter| run.java_owner(waiter)))
    };
    if s.hold.is_empty() && s.queue.is_empty() {
        // There is no hold to hand over; what remains of the state must only not be in the way.
        s.hold_expires = None;
    }
    fixture.write(&s);
    let op = first(case, &s, &waiting);
    let mut run = Run::new(fixture, Rules::default(), s, &mut seen);
    run.both(&op)?;

    let rounds = rounds_max(case.members.len());
    for _ in 0..rounds {
        let hold = run.core().snapshot().hold.keys().next().cloned();
        if waiting.is_empty() || hold.as_ref().is_some_and(|owner| waiting.contains(owner)) {
            return Ok(());
        }
        // A live Java head takes the lock when it is offered, and releases it at once.
        let head = run.core().snapshot().queue.front().cloned();
        let java = (0..4).find(|waiter| Some(run.java_owner(*waiter)) == head);
        if let (None, Some(waiter)) = (&hold, java)
            && case.members.get(waiter as usize) == Some(&Member::JavaLive)
        {
            run.java(waiter, JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 });
            run.java(waiter, JavaAct::Unlock);
            run.adopt();
        }
        run.step(&Step::Time(2_000_000))?;
        let beat = Op::Beat { client: client(0), waiters: waiting.clone() };
        let answer = run.both(&beat)?.map(|answer| answer.body);
        let Some(Body::Beaten { held: None, queued, .. }) = answer else { continue };
        for waiter in waiting.iter().zip(queued).filter(|(_, stands)| !stands).map(|(w, _)| w) {
            // It was removed, learns of it, and returns to its place.
            let now_ms = run.fixture.now_us() / 1_000;
            run.both(&returns(waiter, now_ms))?;
        }
        run.both(&Op::Nudge)?;
    }
    let now = run.core().snapshot().clone();
    Err(format!("no live waiter got the lock within {rounds} heartbeats: {now:#?}"))
}

fn all_are_healed(generation: Generation, members_max: usize) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    let members = match std::env::var("FAIRLOCK_DIFF_MEMBERS") {
        Ok(text) => text.parse().expect("FAIRLOCK_DIFF_MEMBERS is a number"),
        Err(_) => members_max,
    };
    let cases = cases(members);
    println!("{} cases", cases.len());
    for case in &cases {
        if let Err(story) = live_through(&mut fixture, case) {
            panic!("{case:?}\n{story}");
        }
    }
}

#[test]
fn f38_every_small_queue_is_healed_and_served() {
    all_are_healed(Generation::Redis70, MEMBERS);
}

#[test]
fn f38_every_small_queue_is_healed_and_served_on_redis_6_2() {
    all_are_healed(Generation::Redis62, MEMBERS_ELSEWHERE);
}

#[test]
fn f38_every_small_queue_is_healed_and_served_on_valkey_9_1() {
    all_are_healed(Generation::Valkey91, MEMBERS_ELSEWHERE);
}
