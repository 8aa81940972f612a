use super::super::file::SWEEP_EACH;
use super::super::{HostFile, OpenOptions};
use super::fixture::*;
use crate::ErrorKind;
use crate::settings::client_info::ClientInfo;
use fairlock_core::{
    Body, Channel, Kind, LockState, Mode, Op, OwnerId, Rules, SimpleValue, Snapshot, Token,
};
use std::fs;
use std::time::{Duration, SystemTime};

/// Two connections to one file are two clients of one store.
#[test]
fn what_one_does_the_other_sees() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.open(), fixture.open());
    let token = take(&mut one, "job", 1);
    let Body::Queued { order, length: 1, .. } = body(&mut two, "job", &acquire(2, Mode::Wait))
    else {
        panic!("not queued");
    };
    assert!(order > 0);
    let wait = body(&mut two, "job", &acquire(3, Mode::Wait));
    assert!(matches!(wait, Body::Queued { length: 2, .. }), "{wait:?}");
    let (answer, effects) = apply(&mut one, "job", &release(1, token)).unwrap();
    assert_eq!(answer.body, Body::Released);
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].channel, Channel::Inbox(client(2)));
    // The second connection had the state before the release in its cache.
    let Body::Inspected(seen) = body(&mut two, "job", &inspect()) else { panic!() };
    assert_eq!(seen.holder.unwrap().owner, owner(2));
    assert_eq!(seen.queue_len, 1);
    assert_eq!(
        body(&mut one, "job", &Op::Place { owner: owner(3) }),
        Body::Place { ahead: Some(0) }
    );
}

/// Several locks are taken in one transaction, or none of them is touched.
#[test]
fn several_are_taken_together_or_not_at_all() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "b", 1);
    let asks = ["a", "b", "c"].map(|lock| (name(lock), acquire(2, Mode::Try)));
    let worlds = [Everybody, Everybody, Everybody];
    let before = row(&file, "b");
    let busy = file.apply_together(&asks, &Rules::default(), &worlds).unwrap().err();
    assert_eq!(busy, Some(1));
    assert_eq!(row(&file, "b"), before);
    for lock in ["a", "c"] {
        assert_eq!(state(&mut file, lock), Snapshot::default(), "{lock}");
    }
    assert_eq!(body(&mut file, "b", &release(1, token)), Body::Released);
    let done = file.apply_together(&asks, &Rules::default(), &worlds).unwrap();
    assert_eq!(done.map(|done| done.len()), Ok(3), "all are free");
    let mut other = fixture.open();
    for lock in ["a", "b", "c"] {
        assert!(state(&mut other, lock).hold.contains_key(&owner(2)), "{lock}");
    }
}

/// Whether SQLite waits for the disk where its files need it.
fn waits_for_the_disk(file: &HostFile) -> bool {
    file.db.pragma_query_value(None, "synchronous", |row| row.get::<_, u8>(0)).unwrap() == 1
}

/// The header of an empty log is written without waiting for the disk, and nothing else ever is: neither what comes after
/// another process has written first, nor after it had the file locked.
#[test]
fn only_the_header_of_the_log_does_not_wait_for_the_disk() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let log = fixture.dir.path().join("locks-wal");
    let (mut one, mut two) = (fixture.open(), fixture.open());
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    assert!(waits_for_the_disk(&one));
    let token = take(&mut one, "job", 1);
    assert!(waits_for_the_disk(&one));
    let before = fs::metadata(&log).unwrap().len();
    let page = 4_096 + 24;
    // One new row in some also moves the sweep on; the token is the time of the row.
    let swept = u64::from(token.get().is_multiple_of(SWEEP_EACH));
    assert_eq!(
        before,
        32 + (2 + swept) * page,
        "its header, with a page that stays as it is, the lock's, and the sweep's"
    );
    assert_eq!(body(&mut two, "job", &release(1, token)), Body::Released);
    assert_eq!(fs::metadata(&log).unwrap().len(), before + page, "it has a header");
    assert!(waits_for_the_disk(&two));
    drop((one, two));
    // As the first one, beside a process that has the file locked.
    let busy = Duration::from_millis(100);
    let mut file = HostFile::open(&fixture.path(), &OpenOptions { busy, ..options() }).unwrap();
    let other = rusqlite::Connection::open(fixture.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(apply(&mut file, "job", &acquire(1, Mode::Try)).is_err());
    assert!(waits_for_the_disk(&file));
    other.execute_batch("ROLLBACK").unwrap();
    take(&mut file, "job", 1);
    assert!(waits_for_the_disk(&file));
}

/// After a loss of power any part of the log may be missing. The file is then as it was when the log was last written
/// back.
#[test]
fn a_log_that_did_not_reach_the_disk_leaves_the_file_intact() {
    let fixture = Fixture::new();
    let token = take(&mut fixture.open(), "early", 1);
    let mut file = fixture.open();
    take(&mut file, "late", 2);
    let log = fs::read(fixture.dir.path().join("locks-wal")).unwrap();
    let page = 4_096 + 24;
    for missing in [0..32, 0..log.len(), 32..32 + page, log.len() - page..log.len()] {
        let after = Fixture::new();
        fs::copy(fixture.path(), after.path()).unwrap();
        let mut left = log.clone();
        left[missing.clone()].fill(0);
        fs::write(after.dir.path().join("locks-wal"), left).unwrap();
        let mut file = after.open();
        assert!(state(&mut file, "late").hold.is_empty(), "{missing:?}");
        take(&mut file, "late", 3);
        assert_eq!(body(&mut file, "early", &release(1, token)), Body::Released, "{missing:?}");
    }
}

/// A heartbeat with nothing to do leaves the row as it is, sees what others wrote meanwhile, and
/// learns of its grant.
#[test]
fn a_quiet_heartbeat_writes_nothing() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.open(), fixture.open());
    let rules = Rules { ages: false, ..Rules::default() };
    let job = name("job");
    let token = take(&mut one, "job", 1);
    let wait = two.apply(&job, &acquire(2, Mode::Wait), &rules, &Everybody);
    assert!(matches!(wait.unwrap().0.body, Body::Queued { .. }));
    let beat = |file: &mut HostFile| {
        let waiters = [owner(2)];
        file.beat_quietly(&job, (client(2), &waiters), &rules, &Everybody, 60_000).unwrap()
    };
    let before = row(&one, "job");
    let answer = beat(&mut two).expect("nothing to do");
    assert!(matches!(answer.body, Body::Beaten { held: None, .. }), "{answer:?}");
    assert_eq!(row(&one, "job"), before);
    one.apply(&job, &release(1, token), &rules, &Everybody).unwrap();
    let answer = beat(&mut two);
    assert!(answer.is_none(), "it stands in the queue no more: {answer:?}");
    // A file that a newer version has changed is reported, not read.
    one.db.pragma_update(None, "user_version", 99).unwrap();
    let waiters = [owner(2)];
    let told = two.beat_quietly(&job, (client(2), &waiters), &rules, &Everybody, 60_000);
    assert_eq!(told.unwrap_err().error.kind(), ErrorKind::Protocol);
}

/// The core's refusals name the lock and leave the row as it was.
#[test]
fn a_refusal_changes_nothing() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    let before = row(&file, "job");
    let error = apply(&mut file, "job", &Op::Force { kind: Kind::Simple }).unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::WrongType);
    assert_eq!(error.error.lock(), Some(&name("job")));
    assert!(!error.doubt && !error.passing);
    assert_eq!(row(&file, "job"), before);
    // Nor does an inspection, or an attempt that finds the lock held.
    body(&mut file, "job", &inspect());
    assert!(matches!(body(&mut file, "job", &acquire(2, Mode::Try)), Body::Busy { .. }));
    assert_eq!(row(&file, "job"), before);
}

/// D01: in the host store, too, every operation refuses data that is certainly not a lock, and the
/// row stays as it was. Only a row written by another version can contain such data.
#[test]
fn d01_a_row_that_is_no_lock_is_refused_and_stays() {
    let foreign = |id: &str| OwnerId::parse(id.as_bytes());
    let hash = |fields: &[(&str, i64)]| Snapshot {
        hold: fields.iter().map(|(id, count)| (foreign(id), *count)).collect(),
        ..Snapshot::default()
    };
    let counter = SimpleValue::Foreign(b"5".as_slice().into());
    for (state, says) in [
        (hash(&[("name", 1), ("mail", 1)]), "a hash with 2 fields, not a lock"),
        (hash(&[("mode", 1)]), "a field `mode`"),
        (hash(&[("visits", 0)]), "no hold count"),
        (hash(&[("visits", 2_147_483_648)]), "no hold count"),
        (Snapshot { value: Some(counter), ..Snapshot::default() }, "a number without a TTL"),
    ] {
        let fixture = Fixture::new();
        let mut file = fixture.open();
        file.put(&name("job"), &LockState::from_snapshot(state.clone())).unwrap();
        let before = row(&file, "job");
        let token = Token::new(5).unwrap();
        let operations = [
            acquire(1, Mode::Wait),
            acquire(1, Mode::Try),
            release(1, token),
            Op::Renew { kind: Kind::Plain, owner: owner(1), token, ttl_ms: 5 },
            Op::Beat { client: client(1), waiters: vec![owner(1)] },
            Op::Nudge,
            Op::Place { owner: owner(1) },
            inspect(),
            Op::Force { kind: Kind::Fair },
        ];
        let simple = state.value.is_some();
        let operations =
            if simple { vec![Op::Force { kind: Kind::Simple }] } else { operations.into() };
        for op in operations {
            let error = apply(&mut file, "job", &op).unwrap_err().error;
            assert_eq!(error.kind(), ErrorKind::WrongType, "{op:?}");
            assert!(error.to_string().contains(says), "{op:?}: {error}");
            assert_eq!(row(&file, "job"), before, "{op:?}");
        }
    }
}

/// A panic in the middle of a transaction ends the transaction.
#[test]
fn a_panic_takes_its_transaction_with_it() {
    struct Panics;
    impl fairlock_core::World for Panics {
        fn inbox(&self, _: fairlock_core::ClientId) -> bool {
            panic!("as a bug would");
        }
        fn listening(&self, _: &OwnerId) -> bool {
            panic!("as a bug would");
        }
    }
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    let mut wait = acquire(2, Mode::Wait);
    if let Op::Acquire(acquire) = &mut wait {
        acquire.sure = false;
    }
    body(&mut file, "job", &wait);
    let before = row(&file, "job");
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        file.apply(&name("job"), &release(1, token), &Rules::default(), &Panics)
    }));
    assert!(ended.is_err());
    assert_eq!(row(&file, "job"), before);
    assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
}

#[test]
fn names_come_a_page_at_a_time() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let mut all = Vec::new();
    for at in 0..25 {
        let lock = format!("lock {at:02}");
        let token = take(&mut file, &lock, 1);
        all.push(name(&lock));
        if at % 2 == 0 {
            body(&mut file, &lock, &release(1, token));
        }
    }
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = file.names(after.as_ref(), 10).unwrap();
        found.extend(page.names);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (all, 3));
}

/// Anyone who may write to the file, such as a member of the group, can put SQL code into it. It is
/// not executed.
#[test]
fn triggers_in_the_file_do_nothing() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let db = rusqlite::Connection::open(fixture.path()).unwrap();
    db.execute_batch("CREATE TRIGGER t AFTER INSERT ON lock BEGIN DELETE FROM lock; END").unwrap();
    take(&mut fixture.open(), "job", 1);
    assert_eq!(state(&mut fixture.open(), "job").hold.len(), 1);
}

/// A name can be any bytes, and long.
#[test]
fn any_legal_name_is_a_lock_of_its_own() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let long = [b'x'; fairlock_core::MAX_NAME_BYTES];
    let names: [&[u8]; 6] = [b"a", b"A", b"a\0", b"\xff\xfe", b"'; DROP TABLE lock; --", &long];
    for (number, bytes) in names.iter().enumerate() {
        let lock = fairlock_core::LockName::new(bytes).unwrap();
        let op = acquire(number as u64, Mode::Try);
        let done = file.apply(&lock, &op, &Rules::default(), &Everybody).unwrap();
        assert!(matches!(done.0.body, Body::Granted { .. }), "{lock}");
    }
    assert_eq!(file.names(None, 100).unwrap().names.len(), names.len());
}

#[test]
fn clients_say_who_they_are_until_they_leave() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.open(), fixture.open());
    let config = crate::Config::memory().label("nightly");
    let info = ClientInfo::here(&config, SystemTime::now());
    one.announce(client(1), &info).unwrap();
    one.announce(client(2), &ClientInfo { label: Some("\x1b[2J".into()), ..info.clone() }).unwrap();
    let known = two.clients(&[client(1), client(2), client(3)]).unwrap();
    assert_eq!(known.len(), 1, "one announced nothing, one nothing legible: {known:?}");
    let seen = &known[&client(1)];
    assert_eq!((seen.pid, &seen.label, &seen.host), (info.pid, &info.label, &info.host));
    assert_eq!((seen.lease, info.lease.is_some()), (info.lease, true));
    let age = SystemTime::now().duration_since(seen.since).unwrap();
    assert!(age.as_secs() < 60, "{age:?}");
    // Announced again, the client keeps its first start time.
    let db = rusqlite::Connection::open(fixture.path()).unwrap();
    let id = client(1).to_string();
    let since = || -> i64 {
        db.query_row("SELECT since_ms FROM client WHERE id = ?1", [&id], |row| row.get(0)).unwrap()
    };
    let first = since();
    std::thread::sleep(Duration::from_millis(20));
    one.announce(client(1), &info).unwrap();
    assert_eq!(since(), first);
    one.drop_lease(client(1)).unwrap();
    assert_eq!(two.clients(&[client(1)]).unwrap()[&client(1)].lease, None);
    assert_eq!(two.announced(None, 10).unwrap(), [client(1), client(2)]);
    assert_eq!(two.announced(Some(client(1)), 10).unwrap(), [client(2)]);
    two.farewell(client(1)).unwrap();
    assert!(one.clients(&[client(1)]).unwrap().is_empty());
}

/// The rows of names that are used once are dropped after a while; those in use stay.
#[test]
fn idle_locks_are_forgotten_and_the_series_rises_all_the_same() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let mut now_us = file.now_us() / 32 * 32;
    let mut tokens = Vec::new();
    let rows = |file: &HostFile| -> i64 {
        file.db.query_row("SELECT count(*) FROM lock", [], |row| row.get(0)).unwrap()
    };
    let mut most = 0;
    for at in 0..3_000_u64 {
        // 2 s apart, plus 1 us, so that every 32nd comes at a round time.
        now_us += 2_000_001;
        file.stopped_us = Some(now_us);
        let lock = format!("invoice {at}");
        let token = take(&mut file, &lock, 1);
        if at % 1_000 == 0 {
            continue;
        }
        if at < 10 {
            tokens.push((lock.clone(), token));
        }
        body(&mut file, &lock, &release(1, token));
        most = most.max(rows(&file));
    }
    println!("measured: at most {most} rows");
    // 30 of the last minute, those not cleaned up yet, and the three that are held.
    assert!(most < 400, "{most}");
    for (lock, token) in tokens {
        assert_eq!(state(&mut file, &lock).token, None, "{lock} was forgotten");
        assert!(take(&mut file, &lock, 1) > token, "{lock}");
    }
    // Locks that are held are not forgotten.
    for at in [0, 1_000, 2_000] {
        assert_eq!(state(&mut file, &format!("invoice {at}")).hold.len(), 1);
    }
}
