//! The cost of scripts: how often each path calls which command, by the server's own count. No
//! times, so the figures are the same on every machine. They are in `testing/guard/scripts.txt`;
//! `scripts/guard --record` writes them.

use super::super::reply;
use super::fixture::Fixture;
use super::run::{START_US, client, owner, request};
use fairlock_core::{
    Acquire, Body, Kind, Mode, Op, OwnerId, Payload, Rules, Share, ShareAcquire, Token,
};
use fairlock_testkit::server::Generation;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

const RECORDED: &str = "testing/guard/scripts.txt";
const HEAD: &str = "\
# Commands that a script calls on each path, on Redis 7.0: `TOTAL  PATH: COMMAND=TIMES ...`.
# Written by `scripts/guard --record`; docs/performance.md, \"Guard\", says what to do about a difference.
";

/// The state that a path begins with.
#[derive(Clone, Copy)]
enum Before {
    /// The lock was never taken.
    Nothing,
    /// Nobody holds the lock, and its token key exists.
    Free,
    /// Owner 0 holds it, and this many of our waiters are queued.
    Held(u64),
    /// Owners 0 and 1 take turns: owner 0 holds the lock, and the queue is empty.
    Turns,
}

/// A path: its operation is given the token of owner 0's hold.
type Path = (&'static str, Kind, Before, fn(Token) -> Op);

const PATHS: [Path; 27] = [
    ("acquire, first of all", Kind::Fair, Before::Nothing, |_| acquire(Kind::Fair, 1)),
    ("acquire, free", Kind::Fair, Before::Free, |_| acquire(Kind::Fair, 1)),
    ("acquire, free, explicit owner", Kind::Fair, Before::Free, |_| explicit(1)),
    ("acquire, busy", Kind::Fair, Before::Held(0), |_| try_once(Kind::Fair, 1)),
    ("acquire, first in the queue", Kind::Fair, Before::Held(0), |_| acquire(Kind::Fair, 1)),
    ("acquire, 2nd in the queue", Kind::Fair, Before::Held(1), |_| acquire(Kind::Fair, 101)),
    ("acquire, 101st in the queue", Kind::Fair, Before::Held(100), |_| acquire(Kind::Fair, 101)),
    ("acquire, one of two in turns", Kind::Fair, Before::Turns, |_| acquire(Kind::Fair, 1)),
    ("release, nobody waits", Kind::Fair, Before::Held(0), |token| release(Kind::Fair, token, 0)),
    ("release, one waits", Kind::Fair, Before::Held(1), |token| release(Kind::Fair, token, 0)),
    ("release, 100 wait", Kind::Fair, Before::Held(100), |token| release(Kind::Fair, token, 0)),
    ("release, one hold of two", Kind::Fair, Before::Held(0), |token| {
        release(Kind::Fair, token, 1)
    }),
    ("reenter", Kind::Fair, Before::Held(0), |token| Op::Reenter {
        owner: owner(0),
        token,
        count: 2,
        change: 1,
    }),
    ("renew, nobody waits", Kind::Fair, Before::Held(0), |token| renew(Kind::Fair, token)),
    ("renew, 100 wait", Kind::Fair, Before::Held(100), |token| renew(Kind::Fair, token)),
    ("beat, one waits", Kind::Fair, Before::Held(1), |_| beat()),
    ("beat, 100 wait", Kind::Fair, Before::Held(100), |_| beat()),
    ("leave, 100 wait", Kind::Fair, Before::Held(100), |_| leave(50)),
    ("inspect, nobody waits", Kind::Fair, Before::Held(0), |_| inspect()),
    ("inspect, 10 of 100 wait", Kind::Fair, Before::Held(100), |_| inspect()),
    ("plain acquire, free", Kind::Plain, Before::Free, |_| acquire(Kind::Plain, 1)),
    ("plain acquire, busy", Kind::Plain, Before::Held(0), |_| acquire(Kind::Plain, 1)),
    ("plain release", Kind::Plain, Before::Held(0), |token| release(Kind::Plain, token, 0)),
    ("simple acquire, free", Kind::Simple, Before::Free, |_| acquire(Kind::Simple, 1)),
    ("simple acquire, busy", Kind::Simple, Before::Held(0), |_| acquire(Kind::Simple, 1)),
    ("simple release", Kind::Simple, Before::Held(0), |token| release(Kind::Simple, token, 0)),
    ("simple renew", Kind::Simple, Before::Held(0), |token| renew(Kind::Simple, token)),
];

/// A path of a lock with shares: those who asked before, all of whom wait if need be, with what they asked for; the
/// operation, given the token of owner 0's hold; and the most commands that it may take, however they are recorded.
type SharePath = (&'static str, &'static [(Share, u64)], fn(Token) -> Op, u64);

const ONE: Share = Share::Permits { n: 1, limit: 10 };
const ALL: Share = Share::Permits { n: 10, limit: 10 };

const SHARE_PATHS: [SharePath; 23] = [
    ("read, first of a phase", &[], |_| share(Share::Read, 1), 13),
    ("read, beside 10", &[(Share::Read, 10)], |_| share(Share::Read, 101), 13),
    ("read, beside 300", &[(Share::Read, 300)], |_| share(Share::Read, 401), 13),
    ("write, free", &[], |_| share(Share::Whole, 1), 13),
    ("write, second in line", &[(Share::Whole, 2)], |_| share(Share::Whole, 101), 24),
    ("write, behind a writer", &[(Share::Whole, 1)], |_| share(Share::Whole, 1), 24),
    ("write, behind 10 readers", &[(Share::Read, 10)], |_| share(Share::Whole, 101), 32),
    ("release, one of 10 readers", &[(Share::Read, 10)], release_read, 14),
    ("release, the last reader", &[(Share::Read, 1)], release_read, 10),
    ("release, a writer", &[(Share::Whole, 1)], release_read, 10),
    ("release, a writer waits", &[(Share::Whole, 2)], release_read, 26),
    ("release, a writer waits, in the next second", &[(Share::Whole, 2)], release_read, 27),
    ("release, a writer waits, beside Java", &[(Share::Whole, 2)], release_read, 27),
    ("release, a writer waits, left to Java", &[(Share::Whole, 2)], release_read, 36),
    ("release, a reader waits", &[(Share::Whole, 1), (Share::Read, 1)], release_read, 40),
    ("release, 100 readers wait", &[(Share::Whole, 1), (Share::Read, 100)], release_read, 150),
    ("renew, one of 10 readers", &[(Share::Read, 10)], |token| renew(Kind::ReadWrite, token), 22),
    ("permit, free", &[], |_| share(ONE, 1), 13),
    ("permit, beside 9", &[(ONE, 9)], |_| share(ONE, 101), 16),
    ("permit, behind 10", &[(ONE, 10)], |_| share(ONE, 101), 26),
    ("release, one of 9 permits", &[(ONE, 9)], release_permit, 16),
    ("release, one of 10 permits, one waits", &[(ONE, 11)], release_permit, 28),
    ("release, all permits, one waits", &[(ALL, 2)], release_permit, 28),
];

fn share(share: Share, of: u64) -> Op {
    let kind =
        if matches!(share, Share::Permits { .. }) { Kind::Semaphore } else { Kind::ReadWrite };
    let Op::Acquire(acquire) = acquire(kind, of) else { unreachable!("an acquisition") };
    Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))
}

fn release_read(token: Token) -> Op {
    release(Kind::ReadWrite, token, 0)
}

fn release_permit(token: Token) -> Op {
    release(Kind::Semaphore, token, 0)
}

/// Lets all of them ask, on an empty server, a millisecond after each other. Returns the token of owner 0's hold.
fn prepare_shares(fixture: &mut Fixture, before: &[(Share, u64)]) -> Token {
    // Some are for Redisson's waiters.
    fixture.published();
    fixture.reset(START_US);
    for number in 0..super::step::CLIENTS {
        fixture.inbox(client(number), true);
    }
    let mut token = Token::new(1).expect("1 is a token");
    let asked = before.iter().flat_map(|(share, times)| (0..*times).map(|_| *share));
    for (of, wanted) in (0..).zip(asked) {
        let answer =
            fixture.call(&Rules::default(), &share(wanted, of)).expect("it waits if need be");
        if let (0, Body::Granted { token: got, .. }) = (of, answer.body) {
            token = got;
        }
        fixture.set_now(fixture.now_us() + 1_000);
    }
    token
}

fn asks(kind: Kind, of: u64, mode: Mode, shared_owner: bool) -> Op {
    Op::Acquire(Acquire {
        kind,
        owner: owner(of),
        request: request(of, 0),
        lease_ms: 30_000,
        mode,
        order: None,
        not_after_ms: u64::MAX >> 11,
        sure: false,
        shared_owner,
    })
}

fn acquire(kind: Kind, of: u64) -> Op {
    asks(kind, of, Mode::Wait, false)
}

fn try_once(kind: Kind, of: u64) -> Op {
    asks(kind, of, Mode::Try, false)
}

fn explicit(of: u64) -> Op {
    asks(Kind::Fair, of, Mode::Wait, true)
}

fn release(kind: Kind, token: Token, keep: u32) -> Op {
    let op = Op::Release { kind, owner: owner(0), token, keep, change: 1 };
    op.of_hold(kind, request(0, 0), u64::MAX)
}

fn renew(kind: Kind, token: Token) -> Op {
    let op = Op::Renew { kind, owner: owner(0), token, ttl_ms: 30_000 };
    op.of_hold(kind, request(0, 0), u64::MAX)
}

fn beat() -> Op {
    let waiter = owner(1);
    Op::Beat { client: waiter.client().expect("one of ours"), waiters: vec![waiter] }
}

fn inspect() -> Op {
    Op::Inspect { kind: Kind::Fair, limit: 10 }
}

fn leave(of: u64) -> Op {
    Op::Leave {
        kind: Kind::Fair,
        owner: owner(of),
        request: request(of, 0),
        bury: false,
        shared_owner: false,
    }
}

/// Brings the lock of an empty server into the state that a path begins with. Returns the token of owner 0's hold.
fn prepare(fixture: &mut Fixture, kind: Kind, before: Before) -> Token {
    fixture.reset(START_US);
    for number in 0..super::step::CLIENTS {
        fixture.inbox(client(number), true);
    }
    let none = Token::new(1).expect("1 is a token");
    if matches!(before, Before::Nothing) {
        return none;
    }
    let answer = fixture.call(&Rules::default(), &acquire(kind, 0)).expect("free");
    let Body::Granted { token, .. } = answer.body else { panic!("{answer:?}") };
    match before {
        Before::Held(waiters) => {
            for of in 1..=waiters {
                fixture.call(&Rules::default(), &acquire(kind, of)).expect("queued");
            }
        }
        Before::Turns => {
            fixture.call(&Rules::default(), &acquire(kind, 1)).expect("queued");
            fixture.call(&Rules::default(), &release(kind, token, 0)).expect("handed to owner 1");
            fixture.call(&Rules::default(), &acquire(kind, 0)).expect("queued");
            let granted =
                fixture.messages().into_iter().find_map(|message| match message.payload {
                    Payload::Grant { grant, .. } => Some(grant.token),
                    _ => None,
                });
            let token = granted.expect("owner 1 was told");
            let back = Op::Release { kind, owner: owner(1), token, keep: 0, change: 1 };
            fixture.call(&Rules::default(), &back).expect("handed back");
        }
        _ => {
            fixture.call(&Rules::default(), &release(kind, token, 0)).expect("released");
        }
    }
    token
}

/// How often the server ran each command, apart from those that clients send themselves.
fn calls(fixture: &mut Fixture) -> BTreeMap<String, u64> {
    let stats = fixture.raw.call(&["INFO", "commandstats"]);
    let mut calls = BTreeMap::new();
    for line in stats.text().lines() {
        let Some((name, rest)) =
            line.strip_prefix("cmdstat_").and_then(|l| l.split_once(":calls="))
        else {
            continue;
        };
        let (times, _) = rest.split_once(',').expect("more follows");
        if !matches!(name, "eval" | "evalsha" | "info" | "config|resetstat") {
            calls.insert(name.to_owned(), times.parse().expect("a number"));
        }
    }
    calls
}

fn measure(fixture: &mut Fixture) -> String {
    let mut lines = HEAD.to_owned();
    for (path, kind, before, op) in PATHS {
        let token = prepare(fixture, kind, before);
        let op = op(token);
        fixture.messages();
        fixture.set_now(START_US + 1_000);
        fixture.raw.call(&["CONFIG", "RESETSTAT"]);
        let answer = fixture.call(&Rules::default(), &op).expect(path);
        let calls = calls(fixture);
        let grants =
            fixture.messages().into_iter().filter(|m| matches!(m.payload, Payload::Grant { .. }));
        let handed_on = matches!((op, before), (Op::Release { keep: 0, .. }, Before::Held(1..)));
        assert_eq!(grants.count(), usize::from(handed_on), "{path}: {answer:?}");
        let total: u64 = calls.values().sum();
        write!(lines, "{total:2}  {path}:").expect("memory");
        for (name, times) in calls {
            write!(lines, " {name}={times}").expect("memory");
        }
        lines.push('\n');
    }
    for (path, before, op, most) in SHARE_PATHS {
        let token = prepare_shares(fixture, before);
        fixture.published();
        if path.ends_with("in the next second") || path.ends_with("left to Java") {
            fixture.set_now(fixture.now_us() + 1_000_000);
        }
        if path.ends_with("Java") {
            fixture.guests(true);
        }
        fixture.raw.call(&["CONFIG", "RESETSTAT"]);
        fixture.call(&Rules::default(), &op(token)).expect(path);
        let calls = calls(fixture);
        let total: u64 = calls.values().sum();
        assert!(total <= most, "{path}: {total} commands, {calls:?}");
        write!(lines, "{total:2}  {path}:").expect("memory");
        for (name, times) in calls {
            write!(lines, " {name}={times}").expect("memory");
        }
        lines.push('\n');
    }
    lines
}

/// Fails when a path calls one more command or leaves its short way, however fast the machine is.
#[test]
fn script_costs_are_those_on_record() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let found = measure(&mut fixture);
    let file = format!("{}/../../{RECORDED}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FAIRLOCK_GUARD_RECORD").is_some() {
        std::fs::write(&file, &found).expect("the tree can be written");
        return;
    }
    let recorded = std::fs::read_to_string(&file).expect(RECORDED);
    let differences: Vec<_> = recorded
        .lines()
        .zip(found.lines())
        .filter(|(was, is)| was != is)
        .map(|(was, is)| format!("on record: {was}\n      now: {is}"))
        .collect();
    assert!(
        recorded == found,
        "scripts call other commands than {RECORDED} says. If that is meant, and what it costs is worth it: \
         scripts/guard --record\n{}",
        differences.join("\n")
    );
}

/// Readers of one client that wait behind a writer: all of them at once, with one message, and a crowd in few calls.
#[test]
fn a_cohort_of_readers_is_granted_at_once() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for (readers, most) in [(100, 1), (1_000, 8)] {
        let token = prepare_shares(&mut fixture, &[(Share::Whole, 1)]);
        for of in 1..=readers {
            let Op::AcquireShare(mut ask) = share(Share::Read, 0) else {
                unreachable!("an acquisition")
            };
            ask.acquire.owner = OwnerId::ours(client(1), 100 + of).expect("a legal number");
            ask.acquire.request = request(of, 7);
            fixture.call(&Rules::default(), &Op::AcquireShare(ask)).expect("it waits");
        }
        fixture.published();
        let mut answer = fixture.call(&Rules::default(), &release_read(token)).expect("released");
        let mut scripts = 1;
        while answer.more {
            answer =
                fixture.call(&Rules::default(), &Op::Nudge.on(Kind::ReadWrite)).expect("nudged");
            scripts += 1;
        }
        let told = fixture
            .published()
            .into_iter()
            .filter(|(channel, _)| channel.starts_with("fairlock_inbox:"));
        let grants: usize = told
            .map(|(_, payload)| reply::cohort_message(&payload).expect("a cohort").0.len())
            .inspect(|grants| assert!(*grants <= 128))
            .sum();
        assert!(scripts <= most, "{readers} readers took {scripts} scripts");
        assert_eq!(grants as u64, readers);
    }
}

/// Instructions of a server that valgrind runs (`scripts/server-costs`), until `go` has come this often.
fn instructions(times: u32, mut go: impl FnMut(&mut Fixture)) -> u64 {
    let logs = std::env::var("FAIRLOCK_COSTS").expect("scripts/server-costs sets it");
    let log = format!("{logs}/log");
    let _ = std::fs::remove_file(&log);
    let mut fixture = Fixture::start(Generation::Redis70).expect("a server");
    for _ in 0..times {
        go(&mut fixture);
    }
    fixture.raw.send(&["SHUTDOWN", "NOSAVE"]);
    let total = || {
        let text = std::fs::read_to_string(&log).ok()?;
        let (_, rest) = text.split_once("refs:")?;
        rest.lines().next()?.replace([',', ' '], "").parse().ok()
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(total) = total() {
            return total;
        }
        assert!(Instant::now() < until, "valgrind did not finish: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What each path costs the server: the difference between as many preparations with and without it.
#[test]
#[ignore = "a measurement: scripts/server-costs"]
fn server_costs() {
    for (path, kind, before, op) in PATHS {
        let times = if matches!(before, Before::Held(100)) { 20 } else { 200 };
        let count = |with: bool| {
            // Once in any case, because the server compiles the script then.
            let mut first = true;
            instructions(times, |fixture| {
                let token = prepare(fixture, kind, before);
                // A later microsecond, as between two calls of a client: tokens follow the clock.
                fixture.set_now(START_US + 1_000);
                if std::mem::take(&mut first) || with {
                    fixture.call(&Rules::default(), &op(token)).expect(path);
                }
            })
        };
        println!("{:7}  {path}", count(true).saturating_sub(count(false)) / u64::from(times - 1));
    }
}
