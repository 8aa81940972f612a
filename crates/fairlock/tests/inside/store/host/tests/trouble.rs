use super::super::{HostFile, OpenOptions};
use super::fixture::*;
use super::places::{as_root, worker_as};
use super::worker::Worker;
use crate::ErrorKind;
use fairlock_core::{Body, Kind, Mode, Op};
use fairlock_testkit::disk::Disk;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::{Duration, Instant};

/// Another user of the file is stopped in the middle of a transaction: a call ends in time, with an
/// error that says so and that is certain to have had no effect. Inspecting still works.
#[test]
fn a_stopped_writer_is_waited_for_so_long_and_no_longer() {
    let fixture = Fixture::new();
    let busy = Duration::from_millis(300);
    let options = OpenOptions { busy, ..options() };
    let mut file = HostFile::open(&fixture.path(), &options).unwrap();
    let token = take(&mut file, "job", 1);
    let mut worker = Worker::start("block", &fixture.path());
    assert_eq!(worker.says().as_deref(), Some("blocks"));
    worker.signal(Signal::STOP);
    let began = Instant::now();
    let error = apply(&mut file, "job", &release(1, token)).unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.error.kind(), ErrorKind::Unavailable);
    assert!(error.passing && !error.doubt, "{error:?}");
    assert!(error.error.to_string().contains("stopped"), "{}", error.error);
    assert!(took >= busy && took < busy + Duration::from_secs(2), "{took:?}");
    let Body::Inspected(seen) = body(&mut file, "job", &inspect()) else { panic!() };
    assert!(seen.holder.is_some());
    // Whether it continues or dies, the file is free again, and its transaction was never
    // committed.
    worker.kill();
    assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
}

/// Some two hundred processes that found the file locked tried again every 2 ms each, and kept the
/// one that had it from going on: holders were not renewed in time, and calls failed after 30 s.
#[test]
fn a_process_that_stands_in_line_does_not_try_again_and_again() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let mut last = Worker::start("stand", &fixture.path());
    assert_eq!(last.says().as_deref(), Some("ready"));
    let mut writer = Worker::start("block", &fixture.path());
    assert_eq!(writer.says().as_deref(), Some("blocks"));
    // Another process is the first in the line.
    let line = fixture.dir.path().join("locks-clients/line");
    let first = fs::File::options().read(true).write(true).create(true).truncate(false).open(line);
    let first = first.unwrap();
    flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    last.tell();
    let said = last.says().unwrap();
    let slept: u32 = said.strip_prefix("slept ").unwrap().parse().unwrap();
    println!("measured: a process in the line sleeps {slept} times a second");
    assert!(slept < 100, "it tries again and again: {slept}");
}

/// The path leads to another file, or to none: a client that has the old one open must not continue
/// as if both were one store.
#[test]
fn a_file_that_was_replaced_is_noticed() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    let aside = fixture.dir.path().join("aside");
    fs::rename(fixture.path(), &aside).unwrap();
    for remade in [false, true] {
        if remade {
            // As the next program would.
            fs::write(fixture.path(), "").unwrap();
        }
        for op in [release(1, token), inspect()] {
            let error = apply(&mut file, "job", &op).unwrap_err();
            assert_eq!(error.error.kind(), ErrorKind::Unavailable);
            assert!(!error.passing && !error.doubt);
            assert!(error.error.to_string().contains("replaced"), "{}", error.error);
        }
    }
    fs::rename(&aside, fixture.path()).unwrap();
    assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
}

/// The disk is full: the error says so, nothing is lost or half done, and existing locks can still
/// be released. The first operation after space is freed works.
#[test]
fn a_full_disk_loses_nothing() {
    let fixture = Fixture::new();
    let Some(disk) = Disk::mount(fixture.dir.path(), "1m") else { return };
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    body(&mut file, "job", &acquire(2, Mode::Wait));
    let filler = disk.fill();
    let mut taken = Vec::new();
    let error = (0..10_000).find_map(|at| {
        let lock = format!("lock {at}");
        match apply(&mut file, &lock, &acquire(1, Mode::Try)) {
            Ok(_) => {
                taken.push(lock);
                None
            }
            Err(error) => Some((lock, error)),
        }
    });
    let (lock, error) = error.expect("the disk never became full");
    println!("measured: {} locks fit into what was there", taken.len());
    assert_eq!(error.error.kind(), ErrorKind::Unavailable);
    assert!(error.passing && !error.doubt, "{error:?}");
    assert!(error.error.to_string().contains("disk is full"), "{}", error.error);
    // Existing holds are still there, and the failed acquisition left nothing.
    assert!(
        matches!(body(&mut file, &lock, &inspect()), Body::Inspected(seen) if seen.holder.is_none())
    );
    for lock in &taken {
        assert!(
            matches!(body(&mut file, lock, &inspect()), Body::Inspected(seen) if seen.holder.is_some())
        );
    }
    // The log restarts in the space that it has: a release takes no more than a few attempts.
    let mut attempts = 0;
    let released = loop {
        attempts += 1;
        match apply(&mut file, "job", &release(1, token)) {
            Ok((answer, effects)) => break (answer.body, effects.len()),
            Err(error) => assert!(error.passing && attempts < 5, "{error:?}"),
        }
    };
    assert_eq!(released, (Body::Released, 1), "and hands the lock on");
    disk.free(&filler);
    let op = Op::Force { kind: Kind::Fair };
    assert_eq!(body(&mut file, "job", &op), Body::Forced { holder: Some(owner(2)), others: 0 });
    take(&mut file, &lock, 1);
    let said: String = file.db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
    drop(file);
    assert_eq!(state(&mut fixture.open(), &lock).hold.len(), 1);
    drop(disk);
}

/// A file that could not be created for lack of space is created once there is some.
#[test]
fn a_full_disk_gets_its_file_later() {
    let fixture = Fixture::new();
    let Some(disk) = Disk::mount(fixture.dir.path(), "1m") else { return };
    let filler = disk.fill();
    for _ in 0..2 {
        let error = open(&fixture.path()).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("disk is full"), "{error}");
    }
    disk.free(&filler);
    take(&mut fixture.open(), "job", 1);
    drop(disk);
}

/// Not even root can write there.
#[test]
fn a_disk_that_is_read_only_is_refused() {
    let fixture = Fixture::new();
    let Some(disk) = Disk::mount(fixture.dir.path(), "1m") else { return };
    take(&mut fixture.open(), "job", 1);
    disk.read_only();
    let error = open(&fixture.path()).err().expect("opened");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("Read-only"), "{error}");
    drop(disk);
}

/// D41: for some seconds no thread could be started. The call that needed one panicked and kept the
/// client's turn at the file: every later call waited for ever.
#[test]
fn d41_a_client_outlives_a_lack_of_threads() {
    let Some(()) = as_root() else { return };
    let fixture = Fixture::new();
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = fixture.dir.path().join("own");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(64_041), Some(64_041)).unwrap();
    let mut worker = worker_as("threads", &folder.join("locks"), 64_041, 64_041);
    assert_eq!(worker.says().as_deref(), Some("works again"));
}

/// D41: a process without a free descriptor could not check who was alive, and took that for death:
/// it removed live clients from the file, and began a log of its own beside theirs.
#[test]
fn d41_want_of_descriptors_is_no_proof_of_death() {
    let fixture = Fixture::new();
    let mut worker = Worker::start("descriptors", &fixture.path());
    for what in ["lived in", "in use", "not swept"] {
        assert_eq!(worker.says(), Some(format!("{what}: true")));
    }
}
