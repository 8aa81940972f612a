//! Limits: the files that a process may open, and the waiters that a release wakes.

use super::{Fixture, LONG, enter, run, take};
use crate::faults::worker::Worker;
use crate::support::{SOON, granted, runtime, soon, until, wait_behind};
use fairlock::{GuardState, Lock};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// Heartbeats come at five times this interval.
const OFTEN: Duration = Duration::from_millis(100);

/// Many heartbeats.
const A_WHILE: Duration = Duration::from_secs(2);

/// A process that cannot open another file cannot check who is alive: it takes nobody for dead, and
/// still gets its turn.
#[test]
fn who_can_open_no_files_takes_nobody_for_dead() {
    run(async |fixture| {
        let client = fixture.client_with(OFTEN).await;
        let lock = client.fair_lock("job");
        let mut poor = Worker::with(&fixture.url(), OFTEN, LONG, []);
        poor.limit_files(0);
        let guard = lock.lock().await.unwrap();
        enter(&mut poor, &lock, 1).await;
        assert!(poor.hear("granted", A_WHILE).is_none(), "taken from one that lives");
        assert_eq!(guard.state(), GuardState::Held);
        let _ = guard.release().await.unwrap();
        poor.expect("granted 0", SOON);
        // It cannot ring: the next waiter learns of its turn from a heartbeat.
        let next = wait_behind(&lock, 1).await;
        poor.order("release 0");
        let _ = granted(next).await.release().await.unwrap();
    });
}

/// Nor can it learn of a death; it does so with the first heartbeat after it can open files again.
#[test]
fn a_death_is_found_when_files_can_be_opened_again() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let (mut holder, mut poor) =
            (fixture.worker(), Worker::with(&fixture.url(), OFTEN, LONG, []));
        take(&mut holder, &lock).await;
        let files = poor.limit_files(0);
        enter(&mut poor, &lock, 1).await;
        holder.kill9();
        assert!(poor.hear("granted", A_WHILE).is_none(), "how could it know?");
        poor.limit_files(files);
        poor.expect("granted 0", SOON);
    });
}

/// The folder of those who wait for the plain lock.
fn listeners(fixture: &Fixture) -> Option<PathBuf> {
    Some(fixture.dir.path().join("locks-clients").join(fixture.files(".base").first()?))
}

fn count(listeners: PathBuf) -> usize {
    std::fs::read_dir(listeners).map_or(0, Iterator::count)
}

/// Other clients that seem to wait for the lock: a listener's file for each, and, with `bells`, a
/// bell that somebody has open.
fn crowd(fixture: &Fixture, bells: bool) -> Vec<File> {
    const CROWD: u32 = 300;
    const FIRST: &str = "00000000-0000-8000-8000-000000000000";
    let folder = fixture.dir.path().join("locks-clients");
    // Whoever looks again stops listening for a moment, and the last one removes the folder: it stays once
    // a file of the crowd is there.
    let mut kept = None;
    fairlock_testkit::wait::until("a folder that stays", SOON, || {
        kept = listeners(fixture).filter(|folder| std::fs::write(folder.join(FIRST), "").is_ok());
        kept.is_some()
    });
    let listeners = kept.unwrap();
    let mut heard = Vec::new();
    for number in 0..CROWD {
        let client = format!("00000000-0000-8000-8000-{number:012x}");
        std::fs::write(listeners.join(&client), "").unwrap();
        if bells {
            let bell = folder.join(format!("{client}.bell"));
            mknodat(CWD, &bell, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            heard.push(File::options().read(true).write(true).open(bell).unwrap());
        }
    }
    heard
}

/// A plain lock that one client holds while others wait for it, in a crowd.
async fn in_a_crowd(fixture: &Fixture, heartbeat: Duration, bells: bool, waiters: usize) {
    let holder = fixture.client().await;
    let guard = holder.plain_lock("job").lock().await.unwrap();
    // No client ends before all have had their turn: the end of one makes others look.
    let (mut clients, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..waiters {
        let client = fixture.client_with(heartbeat).await;
        let lock: Lock = client.plain_lock("job");
        clients.push(client);
        waiting.push(tokio::spawn(async move {
            let _ = lock.lock().await.unwrap().release().await.unwrap();
        }));
    }
    until("they listen", async || listeners(fixture).map_or(0, count) == waiters).await;
    let _heard = crowd(fixture, bells);
    let _ = guard.release().await.unwrap();
    for turn in waiting {
        soon("its turn", turn).await.unwrap();
    }
}

/// A release wakes 64 waiters. The others look with their heartbeats.
#[test]
fn one_of_too_many_listeners_looks_with_its_heartbeat() {
    let fixture = Fixture::new();
    runtime().block_on(in_a_crowd(&fixture, OFTEN, true, 1));
}

/// Listeners that were killed do not count, however many there are. A folder is read in any order:
/// one live listener may come before the dead ones by chance, eight will not.
#[test]
fn dead_listeners_take_nobodys_place() {
    let fixture = Fixture::new();
    runtime().block_on(in_a_crowd(&fixture, super::SELDOM, false, 8));
}

/// The bells of listeners that were just killed still take messages: 64 of them used up all that a
/// release sends, and the living waited for their heartbeats.
#[test]
fn bells_that_nobody_hears_take_nobodys_place() {
    run(async |fixture| {
        let holder = fixture.client().await;
        let guard = holder.plain_lock("job").lock().await.unwrap();
        let (mut clients, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let client = fixture.client().await;
            let lock = client.plain_lock("job");
            clients.push(client);
            waiting.push(tokio::spawn(async move {
                let _ = lock.lock().await.unwrap().release().await.unwrap();
            }));
        }
        until("they listen", async || listeners(fixture).map_or(0, count) == 8).await;
        drop(crowd(fixture, true));
        let _ = guard.release().await.unwrap();
        for turn in waiting {
            soon("its turn", turn).await.unwrap();
        }
    });
}
