//! `multi_try` against the scripts of single locks: if it takes the locks, the answers and all keys with their TTLs are
//! those of one acquisition for each; if it does not, nothing has changed. And against the core, in random histories.

use super::super::keys::Publishing;
use super::super::script::{self, By};
use super::super::wire::Value;
use super::super::{classify, reply};
use super::fixture::{Fixture, Present};
use super::rng::{Rng, seed};
use super::run::{START_US, owner, request};
use fairlock_core::{Acquire, Answer, Body, Kind, LockName, Mode, Model, Op, Rules, Share};
use fairlock_testkit::server::Generation;

/// Until when the requests may be carried out, in ms from the beginning. Random histories are shorter.
const NOT_AFTER_MS: u64 = 600_000;

const NAMES: [&str; 4] = ["{t}fair", "{t}read", "{t}write", "{t}pool"];

fn name(text: &str) -> LockName {
    LockName::new(text.as_bytes()).unwrap()
}

fn ask(n: u64, kind: Kind, share: Share, mode: Mode) -> Op {
    let acquire = Acquire {
        kind,
        owner: owner(n),
        request: request(n, 1),
        lease_ms: 30_000,
        mode,
        order: None,
        not_after_ms: START_US / 1_000 + NOT_AFTER_MS,
        sure: false,
        shared_owner: false,
    };
    Op::asks(acquire, share)
}

/// One of each kind; the requests have these numbers and on.
fn wanted(first: u64, mode: Mode) -> Vec<(LockName, Op)> {
    let [fair, read, write, pool] = NAMES.map(name);
    let permits = Share::Permits { n: 2, limit: 5 };
    vec![
        (fair, ask(first, Kind::Fair, Share::Whole, mode)),
        (read, ask(first + 1, Kind::ReadWrite, Share::Read, mode)),
        (write, ask(first + 2, Kind::ReadWrite, Share::Whole, mode)),
        (pool, ask(first + 3, Kind::Semaphore, permits, mode)),
    ]
}

impl Fixture {
    fn one(&mut self, (name, op): &(LockName, Op)) -> Answer {
        let rules = Rules::default();
        let call = |by| script::call(by, &rules, Publishing::Whole, name, op);
        let value = self.send(&call(By::Text)).unwrap_or_else(|error| panic!("{name}: {error}"));
        reply::answer(value).unwrap()
    }

    /// The answers, or which is not free.
    fn together(&mut self, asks: &[(LockName, Op)]) -> Result<Vec<Answer>, i64> {
        let rules = Rules::default();
        let call = |by| script::call_together(by, &rules, Publishing::Whole, asks);
        let mut value = self.send(&call(By::Hash));
        if value.as_ref().is_err_and(classify::is_noscript) {
            value = self.send(&call(By::Text));
        }
        match value.unwrap_or_else(|error| panic!("{error}")) {
            Value::Array(all) => {
                Ok(all.into_iter().map(|one| reply::answer(one).unwrap()).collect())
            }
            Value::Int(first) => Err(first),
            other => panic!("{other:?}"),
        }
    }

    /// Every key with what is in it, and how long it lives.
    fn everything(&mut self) -> Vec<String> {
        let keys = self.raw.call(&["KEYS", "*"]);
        let mut all = Vec::new();
        for key in keys.array() {
            let key = key.text();
            let (kind, ttl) = (self.raw.call(&["TYPE", key]), self.raw.call(&["PTTL", key]).int());
            let held = match kind.text() {
                "hash" => {
                    let held = self.raw.call(&["HGETALL", key]);
                    let mut pairs: Vec<_> =
                        held.array().chunks(2).map(|pair| format!("{pair:?}")).collect();
                    pairs.sort();
                    pairs.concat()
                }
                "zset" => format!("{:?}", self.raw.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"])),
                "list" => format!("{:?}", self.raw.call(&["LRANGE", key, "0", "-1"])),
                _ => format!("{:?}", self.raw.call(&["GET", key])),
            };
            all.push(format!("{key} {ttl} {held}"));
        }
        all.sort();
        all
    }
}

/// What was there before, and whether the locks are taken all the same, or which is not free.
type Case = (&'static str, Vec<(LockName, Op)>, Result<(), i64>);

fn cases() -> Vec<Case> {
    let of = |which: &[usize], first: u64, mode| {
        let all = wanted(first, mode);
        which.iter().map(|n| all[*n].clone()).collect::<Vec<_>>()
    };
    let (held, waits) = (Mode::Try, Mode::Wait);
    let released = |which: usize, first: u64| {
        let mut all = of(&[which], first, held);
        let (name, op) = all[0].clone();
        let (kind, by) = match &op {
            Op::AcquireShare(ask) => (ask.acquire.kind, ask.acquire.clone()),
            Op::Acquire(by) => (by.kind, by.clone()),
            _ => unreachable!("an acquisition"),
        };
        let leave = Op::Leave {
            kind,
            owner: by.owner,
            request: by.request,
            bury: false,
            shared_owner: false,
        };
        all.push((name, leave));
        all
    };
    let buried = |which: usize| {
        let (name, op) = wanted(100, held)[which].clone();
        let (owner, request, kind) = match &op {
            Op::AcquireShare(ask) => {
                (ask.acquire.owner.clone(), ask.acquire.request, ask.acquire.kind)
            }
            Op::Acquire(by) => (by.owner.clone(), by.request, by.kind),
            _ => unreachable!("an acquisition"),
        };
        vec![(name, Op::Leave { kind, owner, request, bury: true, shared_owner: false })]
    };
    vec![
        ("nothing", vec![], Ok(())),
        ("used before", [released(0, 10), released(1, 20), released(3, 30)].concat(), Ok(())),
        ("a reader", of(&[1], 10, held), Ok(())),
        ("two readers", [of(&[1], 10, held), of(&[1], 20, held)].concat(), Ok(())),
        ("permits", of(&[3], 10, held), Ok(())),
        ("too many permits", [of(&[3], 10, held), of(&[3], 20, held)].concat(), Err(4)),
        ("a holder", of(&[0], 10, held), Err(1)),
        ("a writer", of(&[2], 10, held), Err(3)),
        ("a holder and a waiter", [of(&[0], 10, held), of(&[0], 20, waits)].concat(), Err(1)),
        (
            "a writer and a reader in line",
            [of(&[2], 10, held), of(&[2], 20, waits)].concat(),
            Err(3),
        ),
        ("all of them", wanted(10, held), Err(1)),
        ("its own copy", of(&[0], 100, held), Err(1)),
        ("its own copy of a share", of(&[1], 100, held), Err(2)),
        ("given up", buried(0), Err(1)),
        ("given up, a share", buried(3), Err(4)),
    ]
}

fn compare(generation: Generation) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    for (what, before, expected) in cases() {
        let asks = wanted(100, Mode::Try);
        let prepare = |fixture: &mut Fixture| {
            fixture.reset(START_US);
            for step in &before {
                fixture.one(step);
            }
            fixture.set_now(START_US + 3_000_000);
            fixture.published();
        };
        prepare(&mut fixture);
        let untouched = fixture.everything();
        match (fixture.together(&asks), expected) {
            (Ok(answers), Ok(())) => {
                let after = fixture.everything();
                assert_eq!(fixture.published(), [], "{what}");
                prepare(&mut fixture);
                let one_by_one: Vec<_> = asks.iter().map(|ask| fixture.one(ask)).collect();
                assert_eq!(answers, one_by_one, "{what}");
                assert_eq!(after, fixture.everything(), "{what}");
                assert!(answers.iter().all(|it| matches!(it.body, Body::Granted { .. })), "{what}");
            }
            (Err(first), Err(expected)) => {
                assert_eq!(first, expected, "{what}");
                assert_eq!(untouched, fixture.everything(), "{what}");
            }
            (found, expected) => panic!("{what}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn several_locks_in_one_call_are_as_one_after_the_other_on_redis_6_2() {
    compare(Generation::Redis62);
}

#[test]
fn several_locks_in_one_call_are_as_one_after_the_other_on_redis_7_0() {
    compare(Generation::Redis70);
}

#[test]
fn several_locks_in_one_call_are_as_one_after_the_other_on_valkey_9_1() {
    compare(Generation::Valkey91);
}

/// What a random history has reached.
#[derive(Debug, Default)]
struct Reached {
    taken: u32,
    refused: u32,
    /// Refused although the core would have granted each: the common cases of the scripts do not
    /// cover it, and single requests follow.
    left_to_single_ones: u32,
}

/// Random turns at single locks, and between them calls for several, in the scripts and in the core.
fn play(fixture: &mut Fixture, rng: &mut Rng, reached: &mut Reached) {
    const STEPS: u64 = 40;
    let (rules, nobody) = (Rules::default(), Present::default());
    let (mut model, mut now_us) = (Model::<()>::default(), START_US);
    // Who was given what, or waits for it: the number of the request, and which lock.
    let mut known: Vec<(u64, usize)> = Vec::new();
    fixture.reset(now_us);
    for step in 1..=STEPS {
        now_us += rng.pick(&[0, 1, 900, 40_000, 3_000_000, 12_000_000]);
        fixture.set_now(now_us);
        let first = 10 * step;
        if rng.chance(40) {
            let mut asks = wanted(first, Mode::Try);
            rng.shuffle(&mut asks);
            asks.truncate(rng.between(2, 4) as usize);
            let untouched = fixture.everything();
            let mut would = model.clone();
            let by_core: Vec<_> = asks
                .iter()
                .map(|(name, op)| would.apply(now_us, name, op, &rules, &nobody).unwrap().0)
                .collect();
            let grants = |answer: &Answer| matches!(answer.body, Body::Granted { .. });
            match fixture.together(&asks) {
                Ok(answers) => {
                    assert_eq!(answers, by_core, "{asks:?}");
                    model = would;
                    reached.taken += 1;
                    let number = |(name, _): &(LockName, Op)| {
                        let which = NAMES.iter().position(|it| it.as_bytes() == name.as_bytes());
                        which.map(|which| (first + which as u64, which))
                    };
                    known.extend(asks.iter().filter_map(number));
                }
                Err(_) => {
                    assert_eq!(untouched, fixture.everything(), "{asks:?}");
                    reached.refused += 1;
                    reached.left_to_single_ones += u32::from(by_core.iter().all(grants));
                }
            }
            continue;
        }
        let which = rng.below(4) as usize;
        let ended = known.iter().position(|(_, of)| *of == which).filter(|_| rng.chance(60));
        let (name, op) = match ended.map(|at| known.swap_remove(at).0) {
            Some(number) => {
                let (name, op) = wanted(number - which as u64, Mode::Try)[which].clone();
                let kind = op.kind().expect("a lock");
                let (owner, request) = (owner(number), request(number, 1));
                let bury = rng.chance(30);
                (name, Op::Leave { kind, owner, request, bury, shared_owner: false }.on(kind))
            }
            None => {
                let mode = if rng.chance(50) { Mode::Wait } else { Mode::Try };
                known.push((first + which as u64, which));
                wanted(first, mode)[which].clone()
            }
        };
        let by_core = model.apply(now_us, &name, &op, &rules, &nobody).unwrap().0;
        assert_eq!(fixture.one(&(name, op.clone())), by_core, "{op:?}");
    }
    fixture.published();
}

#[test]
fn several_locks_in_one_call_agree_with_the_core() {
    const HISTORIES: u64 = 60;
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        let (first, mut reached) = (seed(), Reached::default());
        println!("FAIRLOCK_SEED={first}");
        for history in 0..HISTORIES {
            play(&mut fixture, &mut Rng::new(first.wrapping_add(history)), &mut reached);
        }
        println!("{reached:?}");
        assert!(reached.taken > 50 && reached.refused > 50, "{reached:?}");
        assert!(reached.left_to_single_ones < reached.refused / 2, "{reached:?}");
    }
}

/// Without memory, and after its time, nothing is taken.
#[test]
fn several_locks_in_one_call_that_is_refused_leave_nothing() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    let asks = wanted(100, Mode::Try);
    assert!(fixture.together(&asks).is_ok());
    fixture.reset(START_US);
    fixture.raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let rules = Rules::default();
    let call = script::call_together(By::Text, &rules, Publishing::Whole, &asks);
    let refused = fixture.send(&call).unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    fixture.raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(fixture.everything(), Vec::<String>::new());
    fixture.set_now(START_US + 1_000 * NOT_AFTER_MS + 1_000_000);
    assert_eq!(fixture.together(&asks), Err(1), "too late");
    fixture.raw.call(&["SET", "redisson_lock_token:{t}pool", "odd"]);
    fixture.set_now(START_US);
    assert_eq!(fixture.together(&asks), Err(4), "the last one cannot be taken");
    assert_eq!(fixture.everything().len(), 1);
}
