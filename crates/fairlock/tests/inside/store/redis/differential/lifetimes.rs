//! The TTL of the token key (D17): a day from the moment the clock passes the token, so that no
//! series falls unless the clock goes back by more than that, and at least as long as a hold is
//! renewed.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, owner, request};
use fairlock_core::{Acquire, Body, Kind, Mode, Op, Rules, Snapshot, TOKEN_TTL_MS, Token};
use fairlock_testkit::server::Generation;

const HOUR_US: u64 = 3_600_000_000;

fn take(run: &mut Run<'_>, kind: Kind) -> Token {
    let op = Op::Acquire(Acquire {
        kind,
        owner: owner(0),
        request: request(0, 0),
        lease_ms: 10 * 24 * 3_600_000,
        mode: Mode::Wait,
        order: None,
        not_after_ms: u64::MAX >> 11,
        sure: true,
        shared_owner: false,
    });
    let answer = run.both(&op).unwrap().expect("an answer");
    let Body::Granted { token, .. } = answer.body else { panic!("{answer:?}") };
    token
}

fn release(run: &mut Run<'_>, kind: Kind, token: Token) {
    let op = Op::Release { kind, owner: owner(0), token, keep: 0, change: 1 };
    assert_eq!(run.both(&op).unwrap().expect("an answer").body, Body::Released);
}

/// The expiry of the token key, on which core, host store and server agree.
fn ends(run: &Run<'_>) -> Option<u64> {
    run.core().snapshot().token_expires
}

fn on_every_way(play: impl Fn(&mut Run<'_>, Kind)) {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
        for long_way in [false, true] {
            fixture.reset(START_US);
            fixture.long_way = long_way;
            let mut seen = Seen::new();
            let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
            play(&mut run, kind);
        }
    }
}

/// D17: every name ever locked left a key for seven days: 100 GB at a thousand new names a second.
#[test]
fn d17_a_token_ends_a_day_after_its_time() {
    on_every_way(|run, kind| {
        let token = take(run, kind);
        release(run, kind, token);
        let end = START_US / 1_000 + TOKEN_TTL_MS;
        assert_eq!((ends(run), TOKEN_TTL_MS), (Some(end), 86_400_000));
        run.fixture.set_now((end + 1) * 1_000);
        assert!(take(run, kind) > token);
    });
}

/// The clock was an hour ahead and is set right: the series continues from the token, which the
/// clock has not reached yet. The key has to live for a day after the clock reaches it, or the next
/// token would be smaller.
#[test]
fn d17_a_token_ahead_of_the_clock_outlives_that() {
    on_every_way(|run, kind| {
        let ahead = take(run, kind);
        release(run, kind, ahead);
        run.fixture.set_now(START_US - 20 * HOUR_US);
        run.adopt();
        let next = take(run, kind);
        assert_eq!(next.get(), ahead.get() + 1);
        release(run, kind, next);
        assert_eq!(ends(run), Some(next.get() / 1_000 + TOKEN_TTL_MS));
        run.fixture.set_now(START_US + 23 * HOUR_US);
        let last = take(run, kind);
        assert!(last > next, "{last} after {next}");
    });
}

/// A server that took over without the last writes knows an older hold of the same owner, or no
/// token at all. From its first renewal on it knows the present hold: an operation that ends the
/// older one finds nothing, and no later hold gets a smaller token.
#[test]
fn the_last_token_is_that_of_the_hold_that_is_renewed() {
    on_every_way(|run, kind| {
        let token = take(run, kind);
        if kind == Kind::Simple {
            // A simple lock's value contains the token of its hold.
            return;
        }
        let key = run.fixture.keys.all()[3].clone();
        let older = Token::new(token.get() - 1).unwrap();
        for lost in [false, true] {
            run.fixture.raw.call(&[b"SET".as_slice(), &key, older.to_string().as_bytes()]);
            if lost {
                run.fixture.raw.call(&[b"DEL".as_slice(), &key]);
            }
            run.adopt();
            let renew = Op::Renew { kind, owner: owner(0), token, ttl_ms: 30_000 };
            assert_eq!(run.both(&renew).unwrap().expect("an answer").body, Body::Renewed);
            assert_eq!(run.core().snapshot().token, Some(token.get()));
            let release = Op::Release { kind, owner: owner(0), token: older, keep: 0, change: 1 };
            let body = run.both(&release).unwrap().expect("an answer").body;
            assert!(matches!(body, Body::NotHeld { .. }), "{body:?}");
        }
    });
}

/// A hold that lasts for days without waiters is found by its token alone.
#[test]
fn d17_a_renewed_hold_keeps_its_token() {
    on_every_way(|run, kind| {
        let token = take(run, kind);
        for hours in [1, 11, 13, 24, 36, 47, 58, 70, 81, 92] {
            run.fixture.set_now(START_US + hours * HOUR_US);
            let op = Op::Renew { kind, owner: owner(0), token, ttl_ms: 10 * 24 * 3_600_000 };
            assert_eq!(run.both(&op).unwrap().expect("an answer").body, Body::Renewed);
            let found = run.core().snapshot().token;
            assert_eq!(found, Some(token.get()), "after {hours} h");
        }
        // A renewal does not give a TTL to a series that Java began.
        let key = run.fixture.keys.all()[3].clone();
        run.fixture.raw.call(&[b"PERSIST".as_slice(), &key]);
        run.adopt();
        run.fixture.set_now(START_US + 103 * HOUR_US);
        let op = Op::Renew { kind, owner: owner(0), token, ttl_ms: 10 * 24 * 3_600_000 };
        run.both(&op).unwrap();
        assert_eq!(ends(run), None);
    });
}
