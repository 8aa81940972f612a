//! The rows of shares: what is written, what is read, and what is refused.

use super::super::boot::Boot;
use super::super::parts::{Part, decode, encode};
use super::fixture::*;
use crate::ErrorKind;
use fairlock_core::{Body, CoreError, Kind, LockState, Mode, Op, Rules, Share, SharedHold, Token};
use fairlock_testkit::disk::Disk;
use proptest::prelude::*;
use rusqlite::params;

fn read(file: &mut super::super::HostFile, lock: &str, number: u64) -> Token {
    match body(file, lock, &ask(number, Share::Read, Mode::Try)) {
        Body::Granted { token, .. } => token,
        other => panic!("{number}: {other:?}"),
    }
}

fn released(number: u64, token: Token) -> Op {
    let kind = Kind::ReadWrite;
    let op = Op::Release { kind, owner: owner(number), token, keep: 0, change: 0 };
    op.of_hold(kind, request(number), 0)
}

fn look() -> Op {
    Op::Inspect { kind: Kind::ReadWrite, limit: 10 }
}

fn holding(file: &mut super::super::HostFile, lock: &str) -> u64 {
    let Body::Inspected(seen) = body(file, lock, &look()) else { panic!() };
    seen.shares.expect("shares").holding
}

fn count(file: &super::super::HostFile, sql: &str) -> i64 {
    file.db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn any_part() -> impl Strategy<Value = Part> {
    let share = prop_oneof![
        Just(Share::Whole),
        Just(Share::Read),
        any::<(u32, u32)>().prop_map(|(n, limit)| Share::Permits { n, limit }),
    ];
    let numbers = (any::<u64>(), 1..(1_u64 << 53), any::<u32>(), any::<u64>(), any::<u64>());
    (share, prop::option::of(numbers)).prop_map(|(share, numbers)| match numbers {
        None => Part::Wants(share),
        Some((bits, token, count, change, ends_ms)) => Part::Holds(SharedHold {
            request: request(bits),
            token: Token::new(token).unwrap(),
            share,
            count,
            change,
            ends_ms,
        }),
    })
}

proptest! {
    #[test]
    fn every_share_is_read_as_it_was_written(part in any_part()) {
        let written = encode(&name("job"), &owner(1), &part);
        prop_assert_eq!(decode(&name("job"), &owner(1), &written), Ok(part));
    }

    /// A flipped bit, a missing or extra byte, and the row of another lock or another owner.
    #[test]
    fn damage_is_noticed(part in any_part(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let (job, one) = (name("job"), owner(1));
        let written = encode(&job, &one, &part);
        let mut flipped = written.clone();
        flipped[at.index(written.len())] ^= 1_u8 << bit;
        prop_assert!(decode(&job, &one, &flipped).is_err());
        prop_assert!(decode(&job, &one, &written[..at.index(written.len())]).is_err());
        prop_assert!(decode(&job, &one, &[&written[..], &[0]].concat()).is_err());
        prop_assert!(decode(&name("jobs"), &one, &written).is_err());
        prop_assert!(decode(&job, &owner(2), &written).is_err());
    }
}

/// A thousand readers: a step of one of them writes its row, and the lock's own, which stays small.
#[test]
fn a_step_writes_the_row_of_its_owner_alone() {
    const READERS: u64 = 1_000;
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.open(), fixture.open());
    let mut token = None;
    for number in 0..READERS {
        let file = if number % 2 == 0 { &mut one } else { &mut two };
        token = Some(read(file, "job", number));
    }
    let token = token.unwrap();
    let latest = "SELECT count(*) FROM share WHERE change = (SELECT change FROM lock)";
    assert_eq!(count(&one, latest), 1);
    let (before, bytes) = row(&one, "job");
    println!("measured: the row of a lock with a thousand readers has {} bytes", bytes.len());
    assert!(bytes.len() < 100, "{} bytes", bytes.len());
    let renewal = Op::Renew { kind: Kind::ReadWrite, owner: owner(7), token, ttl_ms: 60_000 };
    let renewal = renewal.of_hold(Kind::ReadWrite, request(7), 0);
    for file in [&mut one, &mut two] {
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(body(file, "job", &renewal), Body::Renewed);
        assert_eq!(count(file, latest), 1);
    }
    assert!(row(&one, "job").0 > before);
    assert_eq!(body(&mut one, "job", &released(7, token)), Body::Released);
    assert_eq!(count(&one, latest), 0);
    assert_eq!(count(&one, "SELECT count(*) FROM share"), READERS as i64 - 1);
    // The other connection knew all of them.
    assert_eq!(holding(&mut two, "job"), READERS - 1);
}

/// One was removed and one was added since the other connection looked: as many as before.
#[test]
fn who_went_while_another_came_is_noticed() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.open(), fixture.open());
    let token = read(&mut one, "job", 1);
    read(&mut one, "job", 2);
    assert_eq!(holding(&mut two, "job"), 2);
    assert_eq!(body(&mut one, "job", &released(1, token)), Body::Released);
    read(&mut one, "job", 3);
    assert_eq!(holding(&mut two, "job"), 2);
    let held = two.state_of(&name("job")).unwrap();
    let owners: Vec<_> = held.shares().expect("shares").holds().keys().cloned().collect();
    assert_eq!(owners, [owner(2), owner(3)]);
    assert_eq!(body(&mut two, "job", &released(1, token)), Body::NotHeld { holder: None });
}

/// A file that nobody used for shares is as it was before there were any, and so is a lock that nobody
/// uses.
#[test]
fn what_has_no_shares_stays_as_it_was() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
    let token = take(&mut file, "job", 1);
    body(&mut file, "job", &release(1, token));
    let (before, idle) = (count(&file, tables), row(&file, "job").1);
    let token = read(&mut file, "job", 1);
    assert_eq!(count(&file, tables), before + 1);
    body(&mut file, "job", &released(1, token));
    assert_eq!(row(&file, "job").1.len(), idle.len());
    assert_eq!(count(&file, "SELECT count(*) FROM share"), 0);
    let again = take(&mut file, "job", 2);
    assert!(again > token, "a free name serves every kind");
    assert!(body(&mut file, "job", &release(2, again)) == Body::Released);
}

/// A program that knows no shares decodes the lock's own row, and refuses whatever it is asked.
#[test]
fn former_programs_take_it_for_another_kind_and_change_nothing() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = read(&mut file, "job", 1);
    body(&mut file, "job", &ask(2, Share::Whole, Mode::Wait));
    let keys = super::super::codec::decode(&name("job"), &row(&file, "job").1).unwrap();
    let simple = |op| match op {
        Op::Acquire(mut acquire) => {
            acquire.kind = Kind::Simple;
            Op::Acquire(acquire)
        }
        other => other,
    };
    let operations = [
        acquire(3, Mode::Try),
        acquire(3, Mode::Wait),
        simple(acquire(3, Mode::Try)),
        release(1, token),
        Op::Renew { kind: Kind::Plain, owner: owner(1), token, ttl_ms: 5 },
        Op::Beat { client: client(2), waiters: vec![owner(2)] },
        Op::Nudge,
        Op::Force { kind: Kind::Fair },
        Op::Force { kind: Kind::Simple },
        Op::Reenter { owner: owner(1), token, count: 2, change: 1 },
        Op::Place { owner: owner(2) },
        inspect(),
    ];
    // Long after every lease.
    for now_us in [file.now_us(), file.now_us() + 3_600_000_000] {
        for op in &operations {
            let mut former = LockState::from_snapshot(keys.clone());
            let refused = former.apply(now_us, op, &Rules::default(), &Everybody);
            assert_eq!(refused, Err(CoreError::WrongType), "{op:?}");
        }
    }
}

/// A former program was the first one after a reboot: it has freed the lock, and does not know of the
/// other rows.
#[test]
fn rows_that_a_former_program_left_count_for_nothing() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    read(&mut file, "job", 1);
    read(&mut file, "job", 2);
    let freed = super::super::file::after_reboot(&state(&mut file, "job"));
    let (bytes, _) = super::super::file::row_of(&name("job"), freed, file.now_us());
    let sql = "UPDATE lock SET state = ?1, change = change + 1 WHERE name = ?2";
    file.db.execute(sql, params![bytes, "job".as_bytes()]).unwrap();
    assert_eq!(count(&file, "SELECT count(*) FROM share"), 2);
    let mut file = fixture.open();
    let token = read(&mut file, "job", 3);
    assert_eq!(holding(&mut file, "job"), 1);
    assert_eq!(count(&file, "SELECT count(*) FROM share"), 1);
    body(&mut file, "job", &released(3, token));
    assert_eq!(count(&file, "SELECT count(*) FROM share"), 0);
}

#[test]
fn a_reboot_frees_shares() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = read(&mut file, "job", 1);
    body(&mut file, "job", &ask(2, Share::Whole, Mode::Wait));
    drop(file);
    let next = Boot { id: "another-boot".into(), ..Boot::here().unwrap() };
    let mut file = open_in(&fixture.path(), &next).unwrap();
    assert_eq!(count(&file, "SELECT count(*) FROM share"), 0);
    let Body::Inspected(seen) = body(&mut file, "job", &inspect()) else { panic!() };
    assert_eq!((seen.holder, seen.queue_len), (None, 0));
    assert!(take(&mut file, "job", 3) > token);
}

/// A damaged or missing row of a share is an error of its lock, and of no other.
#[test]
fn damaged_shares_are_an_error_of_their_lock() {
    for sql in [
        "UPDATE share SET state = zeroblob(9) WHERE name = CAST('job' AS BLOB)",
        "DELETE FROM share WHERE name = CAST('job' AS BLOB)",
        "UPDATE share SET owner = CAST('somebody else' AS BLOB) WHERE name = CAST('job' AS BLOB)",
    ] {
        let fixture = Fixture::new();
        let mut file = fixture.open();
        let token = read(&mut file, "job", 1);
        read(&mut file, "other", 1);
        assert_eq!(file.db.execute(sql, []).unwrap(), 1, "{sql}");
        // One that has not read it before.
        let mut file = fixture.open();
        let before = row(&file, "job");
        for op in [ask(2, Share::Read, Mode::Try), released(1, token), look()] {
            let error = apply(&mut file, "job", &op).unwrap_err();
            assert_eq!(error.error.kind(), ErrorKind::Protocol, "{sql}");
            assert_eq!(error.error.lock(), Some(&name("job")));
            assert!(!error.doubt && !error.passing);
        }
        assert_eq!(row(&file, "job"), before);
        assert_eq!(holding(&mut file, "other"), 1);
    }
}

/// The disk fills right after the first share of a file was taken. The table was new, and only in the log, which could not be
/// written back: nothing could be released until there was space.
#[test]
fn a_share_is_released_and_handed_on_when_the_disk_is_full() {
    let fixture = Fixture::new();
    let Some(disk) = Disk::mount(fixture.dir.path(), "1m") else { return };
    let mut file = fixture.open();
    let token = read(&mut file, "job", 1);
    body(&mut file, "job", &ask(2, Share::Whole, Mode::Wait));
    let filler = disk.fill();
    let mut attempts = 0;
    let released = loop {
        attempts += 1;
        match apply(&mut file, "job", &released(1, token)) {
            Ok((answer, effects)) => break (answer.body, effects.len()),
            Err(error) => assert!(error.passing && attempts < 5, "{error:?}"),
        }
    };
    assert_eq!(released, (Body::Released, 1), "and hands the lock on");
    disk.free(&filler);
    drop(file);
    drop(disk);
}
