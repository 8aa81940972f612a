//! A crash at any moment leaves the file intact.

use super::fixture::*;
use super::worker::{LIMIT, LOCKS, READERS, Worker};
use fairlock_core::{Share, Shares, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const KILLS: u64 = 200;
const WORKERS: u64 = 3;

/// 200 kills, at random moments, of processes that work on the file as fast as they can. After each
/// one the file passes SQLite's own check, every lock keeps the core's invariants, no token was
/// given twice, and none is above the file's last token.
#[test]
fn two_hundred_kills_leave_the_file_whole() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let mut seed = 0;
    let mut start = || {
        seed += 1;
        Worker::start(&format!("spin {seed}"), &fixture.path())
    };
    let mut workers: Vec<_> = (0..WORKERS).map(|_| start()).collect();
    // Who got each lock and token; a worker may learn of its grant more than once.
    let mut told = BTreeMap::new();
    let mut hear = |worker: &mut Worker| {
        while let Some(line) = worker.says() {
            let Some((grant, to)) = line.rsplit_once(' ') else { continue };
            // A writer that downgrades shares its token with the readers behind it.
            let shared = told.get(grant).is_some_and(|before| before != READERS) && to == READERS;
            let before = if shared { None } else { told.insert(grant.to_owned(), to.to_owned()) };
            let is_known = before.is_none_or(|before| before == to || before == READERS);
            assert!(is_known, "a token was given twice: {line}");
        }
        told.len()
    };
    let (mut granted, mut pause) = (0, 1_u64);
    let began = Instant::now();
    for kill in 0..KILLS {
        pause = pause * 48_271 % 2_147_483_647;
        // From before a worker has opened the file until it runs at full speed.
        std::thread::sleep(Duration::from_micros(pause % 60_000));
        let mut dead: Vec<Worker> = if kill % 10 == 9 {
            // All of them, so that nothing but the files remains.
            std::mem::take(&mut workers)
        } else {
            vec![workers.swap_remove((pause % WORKERS) as usize)]
        };
        dead.iter_mut().for_each(Worker::kill);
        judge(&fixture, kill);
        for worker in &mut dead {
            granted = hear(worker);
            workers.push(start());
        }
    }
    workers.iter_mut().for_each(Worker::kill);
    for worker in &mut workers {
        granted = hear(worker);
    }
    let mut file = fixture.open();
    for line in told.keys() {
        let (at, token) = line.split_once(' ').unwrap();
        let last = state(&mut file, &format!("lock {at}")).token.unwrap();
        assert!(
            token.parse::<u64>().unwrap() <= last,
            "lock {at}: {token} was given, {last} is known"
        );
    }
    println!("measured: {KILLS} kills in {:?}, {granted} grants", began.elapsed());
    assert!(granted > KILLS as usize * 10, "hardly anything went on: {granted} grants");
}

fn judge(fixture: &Fixture, kill: u64) {
    let mut file = fixture.open();
    let said: String = file.db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok", "after kill {kill}");
    for at in 0..LOCKS.len() {
        let lock = format!("lock {at}");
        let state = file.state_of(&name(&lock)).unwrap();
        let of_shares = state.shares().and_then(|shares| broken_shares(state.snapshot(), shares));
        if let Some(broken) = broken(state.snapshot()).or(of_shares) {
            panic!("{broken} of {lock} is broken after kill {kill}: {state:#?}");
        }
    }
}

/// The same for the invariants of shares.
fn broken_shares(s: &Snapshot, shares: &Shares) -> Option<&'static str> {
    let held: Vec<_> = shares.holds().values().map(|hold| hold.share).collect();
    let permits = |share: &Share| match share {
        Share::Permits { n, .. } => u64::from(*n),
        _ => 0,
    };
    let used: u64 = held.iter().map(permits).sum();
    let g1 = (held.len() < 2 || !held.contains(&Share::Whole))
        && used <= u64::from(LIMIT)
        && used == shares.used();
    let waits: BTreeSet<_> = s.order.keys().collect();
    let g4 = shares.wants().keys().collect::<BTreeSet<_>>() == waits;
    let g6 = shares.holds().keys().all(|holder| !waits.contains(holder));
    let all = [(g1, "G1"), (g4, "G4"), (g6, "G6")];
    all.into_iter().find(|(kept, _)| !kept).map(|(_, name)| name)
}

/// The first invariant of the core (ARCHITECTURE.md lists them) that a state violates, stated here
/// independently.
fn broken(s: &Snapshot) -> Option<&'static str> {
    let queue: BTreeSet<_> = s.queue.iter().collect();
    let orders: Vec<_> = s.queue.iter().map(|owner| s.order.get(owner)).collect();
    let ended = |is: bool, at: Option<u64>| !is || at.is_some();
    let c1 = s.hold.len() <= 1
        && s.hold.values().all(|count| *count > 0)
        && ended(!s.hold.is_empty(), s.hold_expires);
    let c2 = !s.hold.is_empty() || s.queue.is_empty() || s.record.gather.is_some();
    let c3 = s.order.keys().eq(s.waiters.keys());
    let c4 = orders.iter().all(Option::is_some) && orders.is_sorted();
    let c6 = s.hold.keys().all(|holder| !queue.contains(holder));
    let c7 = queue.len() == s.queue.len() && queue.into_iter().eq(s.scores.keys());
    let c8 = ended(!s.order.is_empty(), s.order_expires)
        && ended(s.has_state(), s.state_expires)
        && ended(!s.beats.is_empty(), s.beats_expires);
    let all = [(c1, "C1"), (c2, "C2"), (c3, "C3"), (c4, "C4"), (c6, "C6"), (c7, "C7"), (c8, "C8")];
    all.into_iter().find(|(kept, _)| !kept).map(|(_, name)| name)
}
