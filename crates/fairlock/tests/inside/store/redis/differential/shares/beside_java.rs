//! What the core does not know of: Redisson's holds in the lock, what it does to ours, and keys that were lost.

use super::super::fixture::Fixture;
use super::super::run::{START_US, owner, request};
use super::run::heard;
use super::step::shares;
use Share::{Read, Whole};
use fairlock_core::{
    Acquire, Answer, Body, Effect, Fate, Kind, Mode, Op, Payload, Rules, Share, ShareAcquire, Token,
};
use fairlock_testkit::server::Generation;

const JAVA: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";
pub(super) const LEASE: u64 = 30_000;

/// A lock of a kind on a server whose clock stands still.
pub(super) struct Scene {
    pub(super) fixture: Fixture,
    pub(super) kind: Kind,
    /// What ours were told.
    pub(super) effects: Vec<Effect>,
    /// What Redisson's waiters were told.
    pub(super) java: Vec<String>,
    /// Whether the last reply said MORE.
    pub(super) more: bool,
}

impl Scene {
    pub(super) fn new(kind: Kind) -> Option<Self> {
        Self::on(Generation::Redis70, kind)
    }

    pub(super) fn on(generation: Generation, kind: Kind) -> Option<Self> {
        let mut fixture = Fixture::start(generation)?;
        fixture.reset(START_US);
        Some(Self { fixture, kind, effects: Vec::new(), java: Vec::new(), more: false })
    }

    pub(super) fn send(&mut self, op: &Op) -> Result<Answer, String> {
        let answer = self.fixture.call(&Rules::default(), op);
        let (effects, java) = heard(&mut self.fixture);
        self.effects.extend(effects);
        self.java.extend(java);
        self.more = answer.as_ref().is_ok_and(|answer| answer.more);
        answer
    }

    pub(super) fn asks(&self, n: u64, lease_ms: u64, mode: Mode) -> Acquire {
        Acquire {
            kind: self.kind,
            owner: owner(n),
            request: request(n, 1),
            lease_ms,
            mode,
            order: None,
            not_after_ms: u64::MAX >> 12,
            sure: true,
            shared_owner: false,
        }
    }

    pub(super) fn ask(&mut self, n: u64, share: Share, mode: Mode) -> Body {
        let acquire = self.asks(n, LEASE, mode);
        self.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))).expect("fine").body
    }

    pub(super) fn gets(&mut self, n: u64, share: Share) -> Token {
        match self.ask(n, share, Mode::Try) {
            Body::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    /// The operation on the hold that the only request of owner `n` got. It is not late.
    pub(super) fn of_hold(&self, n: u64, op: Op) -> Op {
        op.of_hold(self.kind, request(n, 1), self.fixture.now_us() / 1_000)
    }

    pub(super) fn release(&mut self, n: u64, token: Token) -> Body {
        let (kind, owner) = (self.kind, owner(n));
        let op = Op::Release { kind, owner, token, keep: 0, change: 1 };
        self.send(&self.of_hold(n, op)).expect("fine").body
    }

    pub(super) fn renew(&mut self, n: u64, token: Token) -> Body {
        let (kind, owner) = (self.kind, owner(n));
        let op = Op::Renew { kind, owner, token, ttl_ms: LEASE };
        self.send(&self.of_hold(n, op)).expect("fine").body
    }

    pub(super) fn beat(&mut self, n: u64) -> (Vec<Fate>, Option<u64>, bool) {
        let client = owner(n).client().expect("ours");
        let op = Op::Beat { client, waiters: vec![owner(n)] }.on(self.kind);
        match self.send(&op).expect("fine").body {
            Body::Fates { fates, retry_ms, foreign } => (fates, retry_ms, foreign),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let now_us = self.fixture.now_us() + ms * 1_000;
        self.fixture.set_now(now_us);
    }

    pub(super) fn raw(&mut self, words: &[&str]) -> String {
        let reply = self.fixture.raw.call(words);
        if reply.is_nil() { String::new() } else { reply.text().to_owned() }
    }

    pub(super) fn number(&mut self, words: &[&str]) -> i64 {
        self.fixture.raw.call(words).int()
    }

    /// Redisson reads; as its script leaves the keys.
    pub(super) fn java_reads(&mut self, lease_ms: u64) {
        let lease = lease_ms.to_string();
        self.fixture.raw.call(&["HSET", "job", "mode", "read", JAVA, "1"]);
        self.fixture.raw.call(&[
            "SET",
            &format!("{{job}}:{JAVA}:rwlock_timeout:1"),
            "1",
            "PX",
            &lease,
        ]);
        let left = self.number(&["PTTL", "job"]);
        if left < lease_ms as i64 {
            self.number(&["PEXPIRE", "job", &lease]);
        }
    }
}

pub(super) fn timeout_of(n: u64) -> String {
    format!("{{job}}:{}:rwlock_timeout:1", owner(n))
}

#[test]
fn a_hold_looks_to_java_as_its_own() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let writing = rw.gets(0, Whole);
    assert_eq!(rw.raw(&["HGET", "job", "mode"]), "write");
    assert_eq!(rw.raw(&["HGET", "job", &format!("{}:write", owner(0))]), "1");
    assert_eq!(rw.number(&["EXISTS", &timeout_of(0)]), 0);
    rw.release(0, writing);
    assert_eq!(rw.java, ["1"]);
    let reading = rw.gets(0, Read);
    rw.gets(1, Read);
    assert_eq!(rw.raw(&["HGET", "job", "mode"]), "read");
    assert_eq!(rw.raw(&["HGET", "job", &owner(1).to_string()]), "1");
    assert_eq!(rw.number(&["PTTL", &timeout_of(1)]), LEASE as i64);
    rw.release(0, reading);
    assert_eq!((rw.number(&["EXISTS", &timeout_of(0)]), rw.java.len()), (0, 1));
    rw.release(1, reading);
    assert_eq!(rw.java, ["1", "0"]);
    assert_eq!(rw.number(&["EXISTS", "job", &timeout_of(1)]), 0);
}

#[test]
fn a_reader_of_java_keeps_our_writer_out_and_our_readers_not() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    rw.java_reads(20_000);
    let first = rw.gets(0, Read);
    let body = rw.ask(1, Whole, Mode::Wait);
    let Body::Queued { foreign, retry_ms, .. } = body else { panic!("{body:?}") };
    assert!(foreign && retry_ms.is_some(), "{body:?}");
    assert_eq!(rw.release(0, first), Body::Released);
    assert_eq!(rw.beat(1).0, [Fate::Queued], "Java reads");
    assert!(rw.beat(1).2, "Java is near");
    // Java's last reader takes the lock away with it.
    rw.fixture.raw.call(&["DEL", "job"]);
    let (fates, _, foreign) = rw.beat(1);
    assert!(matches!(&fates[..], [Fate::Granted(_)]) && !foreign, "{fates:?}");
}

#[test]
fn a_writer_of_java_keeps_everybody_out_until_it_ends() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let field = format!("{JAVA}:write");
    rw.fixture.raw.call(&["HSET", "job", "mode", "write", &field, "1"]);
    rw.number(&["PEXPIRE", "job", "5000"]);
    assert_eq!(rw.ask(0, Read, Mode::Try), Body::Busy { ttl_ms: Some(5_000) });
    let body = rw.ask(0, Read, Mode::Wait);
    assert!(matches!(body, Body::Queued { retry_ms: Some(5_001), foreign: true, .. }), "{body:?}");
    let token = Token::new(5).expect("a token");
    let of_java = fairlock_core::OwnerId::parse(JAVA.as_bytes());
    assert_eq!(rw.release(1, token), Body::NotHeld { holder: Some(of_java.clone()) });
    let Ok(Answer { body: Body::Inspected(seen), .. }) =
        rw.send(&Op::Inspect { kind: rw.kind, limit: 3 })
    else {
        panic!("it can be looked at")
    };
    let shares = seen.shares.expect("shares");
    assert_eq!((shares.holding, shares.holders.len()), (1, 0));
    assert_eq!(seen.holder.map(|it| it.owner), Some(of_java));
    rw.pass(5_001);
    assert!(matches!(&rw.beat(0).0[..], [Fate::Granted(_)]));
}

/// B18, as far as scripts decide it: whoever renews raises the lock again.
#[test]
fn what_java_cuts_off_the_locks_life_is_given_back() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let acquire = rw.asks(0, 3_600_000, Mode::Try);
    rw.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share: Read }))).expect("fine");
    let short = rw.gets(1, Read);
    rw.java_reads(LEASE);
    assert_eq!(rw.number(&["PTTL", "job"]), 3_600_000, "never lowered beside it");
    rw.number(&["PEXPIRE", "job", "30000"]);
    assert_eq!(rw.renew(1, short), Body::Renewed);
    assert_eq!(rw.number(&["PTTL", "job"]), 3_600_000);
    // And its own longer life is left to it, whoever comes or goes.
    rw.number(&["PEXPIRE", "job", "7200000"]);
    rw.release(1, short);
    assert_eq!(rw.number(&["PTTL", "job"]), 7_200_000);
    let longest = Acquire { lease_ms: 5_400_000, ..rw.asks(2, LEASE, Mode::Try) };
    let body = rw.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire: longest, share: Read })));
    let Body::Granted { token, .. } = body.expect("fine").body else { panic!("it reads") };
    assert_eq!(rw.number(&["PTTL", "job"]), 7_200_000, "with a longer lease than all of ours");
    assert_eq!(rw.release(2, token), Body::Released);
    assert_eq!(rw.number(&["PTTL", "job"]), 7_200_000, "the last of ours to end, but not the last");
}

/// D61: of a reader of Java that has entered often some timeout keys are not looked at, and one of these may live longest.
#[test]
fn the_locks_life_is_kept_beside_a_reader_of_java_with_many_entries() {
    for (entries, life) in [("64", 20_000), ("65", LEASE as i64)] {
        let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
        let token = rw.gets(0, Read);
        rw.java_reads(1_000);
        rw.number(&["HSET", "job", JAVA, entries]);
        rw.raw(&["SET", &format!("{{job}}:{JAVA}:rwlock_timeout:{entries}"), "1", "PX", "20000"]);
        assert_eq!(rw.number(&["PTTL", "job"]), LEASE as i64);
        assert_eq!(rw.release(0, token), Body::Released);
        assert_eq!(rw.number(&["PTTL", "job"]), life, "{entries} entries");
    }
}

/// J2: what a reader of Java leaves goes by the timeout keys; with none it takes the lock away from ours.
#[test]
fn whoever_of_a_cohort_leaves_java_is_told_of_the_others() {
    for first in 1..=3 {
        let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
        let writing = rw.gets(0, Whole);
        for n in 1..=3 {
            assert!(matches!(rw.ask(n, Read, Mode::Wait), Body::Queued { .. }));
        }
        rw.release(0, writing);
        let grants = rw.effects.iter().filter_map(|effect| match &effect.payload {
            Payload::Grant { grant, .. } => Some(grant.clone()),
            _ => None,
        });
        let grants: Vec<_> = grants.collect();
        assert_eq!(grants.len(), 3);
        let mut leaves = [first, 1 + first % 3, 1 + (first + 1) % 3].into_iter();
        for n in leaves.by_ref().take(2) {
            assert_eq!(rw.release(n, grants[0].token), Body::Released);
            let keys = (1..=3).map(timeout_of).collect::<Vec<_>>();
            let ends = keys.iter().map(|key| rw.number(&["PTTL", key])).max();
            assert_eq!(ends, Some(rw.number(&["PTTL", "job"])), "after {n}, {first} was the first");
        }
        rw.release(leaves.next().expect("the last"), grants[0].token);
        assert_eq!(
            rw.number(&["EXISTS", "job", &timeout_of(1), &timeout_of(2), &timeout_of(3)]),
            0
        );
    }
}

/// B20: after Java's readers one of Java's writers may have been there, which mints nothing.
#[test]
fn b20_javas_readers_alone_are_no_phase() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let first = rw.gets(0, Read);
    rw.java_reads(LEASE);
    assert_eq!(rw.gets(1, Read), first);
    rw.release(0, first);
    rw.release(1, first);
    assert_eq!(rw.raw(&["HGET", "job", "mode"]), "read");
    assert!(rw.java.is_empty(), "it is still read");
    assert!(rw.gets(2, Read) > first);
}

/// B20: nor where the note of a phase is all that is left of it.
#[test]
fn b20_a_phase_of_nobody_is_none() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let first = rw.gets(0, Read);
    rw.java_reads(LEASE);
    rw.fixture.raw.call(&["HDEL", "job", &owner(0).to_string()]);
    rw.fixture.raw.call(&["DEL", "fairlock_rw_leases:{job}"]);
    assert_eq!(rw.raw(&["HGET", "fairlock_rw_holds:{job}", "phase"]), first.get().to_string());
    assert!(rw.gets(1, Read) > first);
}

/// The series of tokens goes on above what is held, whatever became of its key.
#[test]
fn a_renewal_brings_a_lost_token_back() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        let Some(mut scene) = Scene::new(kind) else { return };
        let [share, ..] = shares(kind);
        let token = scene.gets(0, share);
        scene.fixture.raw.call(&["DEL", "redisson_lock_token:{job}"]);
        assert_eq!(scene.renew(0, token), Body::Renewed);
        assert_eq!(
            scene.raw(&["GET", "redisson_lock_token:{job}"]),
            token.get().to_string(),
            "{kind:?}"
        );
    }
}

/// The lock tells who holds it.
#[test]
fn a_hold_that_was_taken_out_of_the_lock_has_no_lease() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let token = rw.gets(0, Read);
    rw.pass(1_000);
    rw.gets(1, Read);
    rw.fixture.raw.call(&["HDEL", "job", &owner(0).to_string()]);
    assert!(matches!(rw.ask(2, Whole, Mode::Wait), Body::Queued { .. }));
    assert_eq!(rw.beat(2).0, [Fate::Queued], "one reads");
    assert_eq!(rw.number(&["ZCARD", "fairlock_rw_leases:{job}"]), 1);
    assert_eq!(rw.number(&["EXISTS", &timeout_of(0)]), 0);
    assert_eq!(rw.renew(0, token), Body::NotHeld { holder: None });
}

/// B12: what we know of holders goes with the lock, also if Java has made it anew.
#[test]
fn b12_holds_end_with_the_lock() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        let Some(mut scene) = Scene::new(kind) else { return };
        let [share, ..] = shares(kind);
        let first = scene.gets(0, share);
        scene.gets(1, share);
        scene.fixture.raw.call(&["DEL", "job"]);
        assert_eq!(scene.renew(0, first), Body::NotHeld { holder: None });
        let all = if kind == Kind::ReadWrite { Whole } else { shares(kind)[2] };
        assert!(scene.gets(2, all) > first);
    }
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let first = rw.gets(0, Read);
    rw.fixture.raw.call(&["DEL", "job"]);
    rw.java_reads(LEASE);
    assert_eq!(rw.renew(0, first), Body::NotHeld { holder: None });
    assert!(rw.gets(1, Read) > first, "the phase is over");
    rw.java_reads(2 * LEASE);
    rw.ask(2, Whole, Mode::Wait);
    rw.pass(LEASE + 1);
    assert_eq!(rw.beat(2).0, [Fate::Queued], "Java reads");
    assert_eq!(
        rw.number(&["EXISTS", "fairlock_rw_leases:{job}"]),
        0,
        "the ghost ends with its lease"
    );
}

/// What is left of a former lock of this name does not stand for the holds of Java in the one that it made since.
#[test]
fn holders_of_a_lock_that_java_made_anew_hide_nobody() {
    for by_beat in [false, true] {
        let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
        rw.gets(0, Read);
        rw.gets(1, Read);
        rw.fixture.raw.call(&["DEL", "job"]);
        rw.java_reads(600_000);
        if by_beat {
            rw.beat(2);
        } else {
            rw.gets(2, Read);
        }
        assert_eq!(rw.number(&["PTTL", "job"]), 600_000, "Java's hold is not shortened");
        let body = rw.ask(3, Whole, Mode::Wait);
        assert!(matches!(body, Body::Queued { foreign: true, .. }), "{body:?}");
        assert_eq!(rw.number(&["ZCARD", "fairlock_rw_leases:{job}"]), i64::from(!by_beat));
    }
}

/// A fair lock does not see who waits for a read-write lock of its name. While somebody waits there for a lock that was
/// taken away, it may be taken; then nobody of the line gets anything until it is released.
#[test]
fn a_fair_lock_taken_before_a_line_of_readers_and_writers_excludes_them() {
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    rw.gets(0, Whole);
    rw.ask(1, Whole, Mode::Wait);
    rw.fixture.raw.call(&["DEL", "job"]);
    let fair = Acquire { kind: Kind::Fair, ..rw.asks(2, LEASE, Mode::Wait) };
    let Body::Granted { token, .. } = rw.send(&Op::Acquire(fair)).expect("free").body else {
        panic!("nobody holds it")
    };
    let client = owner(1).client().expect("ours");
    let beat = Op::Beat { client, waiters: vec![owner(1)] }.on(Kind::ReadWrite);
    for op in [beat, Op::Nudge.on(Kind::ReadWrite)] {
        assert!(rw.send(&op).expect_err("in use").contains("FAIRLOCK_KIND"), "{op:?}");
    }
    let release = Op::Release { kind: Kind::Fair, owner: owner(2), token, keep: 0, change: 1 };
    assert_eq!(rw.send(&release).expect("fine").body, Body::Released);
    let (fates, ..) = rw.beat(1);
    let [Fate::Granted(grant)] = &fates[..] else { panic!("{fates:?}") };
    assert!(grant.token > token);
}

/// B13: the leases are lost, and the holds are not.
#[test]
fn b13_a_hold_that_lost_its_lease_gets_one() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        let Some(mut scene) = Scene::new(kind) else { return };
        let [share, _, all] = shares(kind);
        let token = scene.gets(0, share);
        scene.fixture.raw.call(&[
            "DEL",
            "fairlock_rw_leases:{job}",
            "fairlock_rw_holds:{job}",
            "fairlock_sem_leases:{job}",
            "fairlock_sem_holds:{job}",
        ]);
        assert!(matches!(scene.ask(1, all, Mode::Wait), Body::Queued { .. }), "{kind:?}");
        assert_eq!(scene.beat(1).0, [Fate::Queued], "{kind:?}");
        assert_eq!(scene.renew(0, token), Body::Renewed, "{kind:?}");
        for _ in 0..16 {
            scene.pass(2_000);
            scene.beat(1);
        }
        let got = scene.effects.iter().any(|it| matches!(it.payload, Payload::Grant { .. }));
        let held = matches!(&scene.beat(1).0[..], [Fate::Granted(_)]);
        assert!(got || held, "{kind:?}: it ended with the lease");
    }
}

#[test]
fn other_kinds_are_refused_in_the_lock_and_in_the_line() {
    for (kind, other) in [(Kind::ReadWrite, Kind::Semaphore), (Kind::Semaphore, Kind::ReadWrite)] {
        let Some(mut scene) = Scene::new(kind) else { return };
        let [share, ..] = shares(kind);
        let token = scene.gets(0, share);
        scene.kind = other;
        let acquire = scene.asks(1, LEASE, Mode::Wait);
        let ask = ShareAcquire { acquire: acquire.clone(), share: shares(other)[0] };
        let ops = [
            Op::AcquireShare(Box::new(ask.clone())),
            Op::Release { kind: other, owner: owner(0), token, keep: 0, change: 1 },
            Op::Force { kind: other },
            Op::Nudge.on(other),
            Op::Inspect { kind: other, limit: 1 },
            Op::Acquire(Acquire { kind: Kind::Fair, ..acquire.clone() }),
            Op::Force { kind: Kind::Fair },
        ];
        for op in &ops {
            let refused = scene.send(op).expect_err("another kind");
            assert!(refused.contains("FAIRLOCK_KIND"), "{refused}");
        }
        // Nor does one stand in two lines: the hash may be gone for a moment.
        scene.kind = kind;
        assert!(
            matches!(scene.ask(5, shares(kind)[2], Mode::Wait), Body::Queued { .. })
                || kind == Kind::ReadWrite
        );
        for line in
            ["redisson_lock_queue:{job}", "fairlock_sem_order:{job}", "fairlock_rw_order:{job}"]
        {
            scene.fixture.raw.call(&["FLUSHALL"]);
            match line.ends_with("order:{job}") {
                true => scene.fixture.raw.call(&["ZADD", line, "1", JAVA]),
                false => scene.fixture.raw.call(&["RPUSH", line, JAVA]),
            };
            let own = line.starts_with(if kind == Kind::ReadWrite {
                "fairlock_rw"
            } else {
                "fairlock_sem"
            });
            if own {
                // Of one without a record, it may be that the records were lost: others are heard first.
                assert_eq!(scene.ask(0, share, Mode::Try), Body::Busy { ttl_ms: None });
                scene.pass(Rules::default().beat_ms);
            }
            scene.gets(0, share);
            let all = if kind == Kind::ReadWrite { Whole } else { shares(kind)[2] };
            let acquire = scene.asks(1, LEASE, Mode::Wait);
            let waits =
                scene.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share: all })));
            match own {
                true => drop(waits.expect("its own line")),
                false => {
                    assert!(waits.expect_err("another line").contains("FAIRLOCK_KIND"), "{line}");
                }
            }
        }
    }
    let Some(mut rw) = Scene::new(Kind::ReadWrite) else { return };
    let fair = Acquire { kind: Kind::Fair, ..rw.asks(0, LEASE, Mode::Wait) };
    rw.send(&Op::Acquire(fair)).expect("free");
    let acquire = rw.asks(1, LEASE, Mode::Wait);
    let refused = rw.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share: Read })));
    assert!(refused.expect_err("held as a fair lock").contains("FAIRLOCK_KIND"));
}
