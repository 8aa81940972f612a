//! Read-write locks and semaphores: whose death lets whom in, and when.

use super::{AT_ONCE, Fixture, JOB, run};
use crate::faults::fixture::measured;
use crate::faults::worker::Worker;
use crate::support::{SOON, granted, until};
use fairlock::{Client, Error, Guard, Kind, Permit, Share, WriteGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

type Waits = JoinHandle<Result<Guard, Error>>;

/// Longer than a death takes to be noticed, by far.
const A_WHILE: Duration = Duration::from_millis(500);

/// Takes a share that is free: `read`, `write` or `permit`.
fn take(worker: &mut Worker, share: &str) {
    worker.order(&format!("{share} 0 {JOB}"));
    worker.expect("granted 0", SOON);
}

async fn length(client: &Client, share: &str) -> usize {
    match share {
        "permit" | "permits" => client.semaphore(JOB, 2).inspect().await.unwrap().queue_len,
        _ => client.rw_lock(JOB).inspect().await.unwrap().queue_len,
    }
}

async fn line_is(client: &Client, share: &str, count: usize) {
    until("the line", async || length(client, share).await == count).await;
}

/// A worker that waits for a share, at this place.
async fn enter(worker: &mut Worker, client: &Client, share: &str, place: usize) {
    worker.order(&format!("{share} 0 {JOB}"));
    line_is(client, share, place).await;
}

/// Waits for a share in a task, at this place.
async fn wait_for(client: &Client, share: &'static str, place: usize) -> Waits {
    let (rw, permits) = (client.rw_lock(JOB), client.semaphore(JOB, 2));
    let task = tokio::spawn(async move {
        Ok(match share {
            "read" => rw.read().await?.into_guard(),
            "write" => rw.write().await?.into_guard(),
            "permits" => permits.acquire_many(2).await?.into_guard(),
            _ => permits.acquire().await?.into_guard(),
        })
    });
    line_is(client, share, place).await;
    task
}

/// Kills the worker; `next` then gets its share at once.
async fn comes_in(what: &str, dying: &mut Worker, next: Waits) -> Guard {
    let began = Instant::now();
    dying.kill9();
    let guard = granted(next).await;
    measured(what, began.elapsed());
    assert!(began.elapsed() < AT_ONCE, "{what}: {:?}", began.elapsed());
    guard
}

/// What is killed, and what waits for it.
#[test]
fn a_killed_holder_of_a_share_lets_the_next_in_at_once() {
    run(async |fixture| {
        let client = fixture.client().await;
        for (holds, waits) in
            [("read", "write"), ("write", "read"), ("write", "write"), ("permit", "permits")]
        {
            for _ in 0..3 {
                let mut holder = fixture.worker();
                take(&mut holder, holds);
                let next = wait_for(&client, waits, 1).await;
                let what = format!("{waits} after a killed {holds}");
                let _ = comes_in(&what, &mut holder, next).await.release().await.unwrap();
            }
        }
    });
}

/// Both permits are held, by two processes. One of them is enough.
#[test]
fn whichever_holder_dies_its_permit_is_free() {
    run(async |fixture| {
        let client = fixture.client().await;
        for dies in 0..2 {
            let mut holders = [fixture.worker(), fixture.worker()];
            holders.iter_mut().for_each(|holder| take(holder, "permit"));
            let next = wait_for(&client, "permit", 1).await;
            let guard = comes_in("one permit of two", &mut holders[dies], next).await;
            let _ = guard.release().await.unwrap();
            holders[1 - dies].kill9();
        }
    });
}

/// A writer needs the end of all of them, in whatever order and by whatever way they end.
#[test]
fn a_writer_comes_in_when_the_last_of_many_readers_dies() {
    run(async |fixture| {
        let client = fixture.client().await;
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut readers: Vec<_> = (0..3).map(|_| fixture.worker()).collect();
            readers.iter_mut().for_each(|reader| take(reader, "read"));
            let next = wait_for(&client, "write", 1).await;
            readers[order[0]].kill9();
            readers[order[1]].order("release 0");
            readers[order[1]].expect("released 0 Released", SOON);
            tokio::time::sleep(A_WHILE).await;
            assert!(!next.is_finished(), "beside one that reads");
            let guard = comes_in("the last of three readers", &mut readers[order[2]], next).await;
            let _ = guard.release().await.unwrap();
        }
    });
}

/// The writer stood behind the second reader and watched it alone. That one ends as it should; the
/// first one is killed.
#[test]
fn the_new_head_of_the_line_watches_all_who_came_in_before_it() {
    run(async |fixture| {
        let (client, other) = (fixture.client().await, fixture.client().await);
        let first = client.rw_lock(JOB).write().await.unwrap();
        let mut readers = [fixture.worker(), fixture.worker()];
        for (at, reader) in readers.iter_mut().enumerate() {
            enter(reader, &client, "read", at + 1).await;
        }
        let writer = wait_for(&other, "write", 3).await;
        let _ = first.release().await.unwrap();
        for reader in &readers {
            reader.expect("granted 0", SOON);
        }
        readers[1].order("release 0");
        readers[1].expect("released 0 Released", SOON);
        tokio::time::sleep(A_WHILE).await;
        assert!(!writer.is_finished(), "beside one that reads");
        drop(comes_in("the reader that was not before it", &mut readers[0], writer).await);
    });
}

/// Two waiters of one client: the first comes in with a reader of another process, which dies.
#[test]
fn a_client_that_reads_and_waits_to_write_watches_the_other_reader() {
    run(async |fixture| {
        let (client, other) = (fixture.client().await, fixture.client().await);
        let first = client.rw_lock(JOB).write().await.unwrap();
        let reads = wait_for(&other, "read", 1).await;
        let mut reader = fixture.worker();
        enter(&mut reader, &client, "read", 2).await;
        let writer = wait_for(&other, "write", 3).await;
        let _ = first.release().await.unwrap();
        reader.expect("granted 0", SOON);
        let _ = granted(reads).await.release().await.unwrap();
        drop(comes_in("the other reader", &mut reader, writer).await);
    });
}

/// A dead waiter in the line, and a dead head whose share did not fit while those behind it do.
#[test]
fn dead_waiters_for_shares_delay_nobody() {
    run(async |fixture| {
        let client = fixture.client().await;
        let reads = client.rw_lock(JOB).read().await.unwrap();
        let (mut head, mut middle) = (fixture.worker(), fixture.worker());
        enter(&mut head, &client, "write", 1).await;
        enter(&mut middle, &client, "write", 2).await;
        let other = fixture.client().await;
        let last = wait_for(&other, "read", 3).await;
        middle.kill9();
        line_is(&client, "read", 2).await;
        assert!(!last.is_finished());
        let reader = comes_in("a reader behind a dead writer", &mut head, last).await;
        assert_eq!(reader.token(), reads.token());
    });
}

/// A client came in by a message, and watched those who had been in its way then. Its next waiter stands
/// behind others.
#[test]
fn a_client_that_came_in_watches_anew_for_its_next_waiter() {
    run(async |fixture| {
        let (client, other) = (fixture.client().await, fixture.client().await);
        let mut first = fixture.worker();
        let both = client.semaphore(JOB, 2).acquire_many(2).await.unwrap();
        let comes = wait_for(&other, "permit", 1).await;
        let _ = both.release().await.unwrap();
        let has_one = granted(comes).await;
        take(&mut first, "permit");
        let next = wait_for(&other, "permit", 1).await;
        drop(comes_in("one that came in later", &mut first, next).await);
        drop(has_one);
    });
}

/// The same client, whose next waiter stood in the line already, behind one who wants both.
#[test]
fn a_client_that_came_in_watches_who_is_before_its_next_waiter() {
    run(async |fixture| {
        let (client, other) = (fixture.client().await, fixture.client().await);
        let both = client.semaphore(JOB, 2).acquire_many(2).await.unwrap();
        let comes = wait_for(&other, "permit", 1).await;
        let mut wide = fixture.worker();
        enter(&mut wide, &client, "permits", 2).await;
        let next = wait_for(&other, "permit", 3).await;
        let _ = both.release().await.unwrap();
        let has_one = granted(comes).await;
        drop(comes_in("behind one who wants both", &mut wide, next).await);
        drop(has_one);
    });
}

#[test]
fn the_dead_are_shown_by_no_look_and_are_in_nobodys_way() {
    run(async |fixture| {
        let client = fixture.client().await;
        let lock = client.rw_lock(JOB);
        let mut readers = [fixture.worker(), fixture.worker()];
        readers.iter_mut().for_each(|reader| take(reader, "read"));
        let seen = lock.inspect().await.unwrap();
        assert_eq!((seen.holding, seen.holders.len()), (2, 2));
        assert!(lock.try_write().await.unwrap().is_none());
        readers[0].kill9();
        assert_eq!(lock.inspect().await.unwrap().holding, 1);
        assert!(lock.try_write().await.unwrap().is_none());
        readers[1].kill9();
        assert_eq!(lock.inspect().await.unwrap().holding, 0);
        let _ = lock.try_write().await.unwrap().unwrap().release().await.unwrap();
        let permits = client.semaphore("pool", 2);
        let mut holder = fixture.worker();
        holder.order("permit 0 pool");
        holder.expect("granted 0", SOON);
        assert_eq!(permits.usage().await.unwrap().used, 1);
        holder.kill9();
        assert_eq!(permits.usage().await.unwrap().used, 0);
        drop(permits.try_acquire_many(2).await.unwrap().expect("both are free"));
    });
}

/// What the dead held or waited for kept their kind for the name until their leases ended, though a look showed it free.
#[test]
fn a_name_that_only_the_dead_use_serves_every_kind() {
    run(async |fixture| {
        let client = fixture.client().await;
        for used in ["read", "write", "permit", "lock"] {
            for wanted in ["lock", "simple", "write", "permit"] {
                let [mut holds, mut waits] = [fixture.worker(), fixture.worker()];
                take(&mut holds, used);
                waits.order(&format!("{used} 0 {JOB}"));
                // Both permits, or both readers, or one who waits: dead they are all the same.
                holds.kill9();
                waits.kill9();
                let guard = match wanted {
                    "lock" => client.fair_lock(JOB).try_lock().await.unwrap(),
                    "simple" => client.simple_lock(JOB).try_lock().await.unwrap(),
                    "write" => {
                        client.rw_lock(JOB).try_write().await.unwrap().map(WriteGuard::into_guard)
                    }
                    _ => {
                        let permits = client.semaphore(JOB, 2).try_acquire_many(2).await.unwrap();
                        permits.map(Permit::into_guard)
                    }
                };
                let guard = guard.unwrap_or_else(|| panic!("{wanted} after {used}"));
                let _ = guard.release().await.unwrap();
            }
        }
    });
}

#[test]
fn a_stopped_reader_is_not_dead() {
    run(async |fixture| {
        let client = fixture.client().await;
        let mut reader = fixture.worker();
        take(&mut reader, "read");
        let next = wait_for(&client, "write", 1).await;
        super::stop_between_writes(&reader, fixture).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!next.is_finished(), "taken from one that lives");
        reader.cont();
        reader.order("release 0");
        let _ = granted(next).await.release().await.unwrap();
    });
}

/// A share that was left to the store lasts as long as its lease.
#[test]
fn a_detached_share_outlives_its_process() {
    run(async |fixture| {
        let client = fixture.client().await;
        for share in ["read", "permit"] {
            let mut holder = fixture.worker();
            holder.order(&format!("{share} 0 {share}"));
            holder.expect("granted 0", SOON);
            holder.order("detach 0");
            holder.expect("detached 0", SOON);
            holder.kill9();
            if share == "read" {
                assert!(client.rw_lock(share).try_write().await.unwrap().is_none());
                assert_eq!(client.rw_lock(share).inspect().await.unwrap().holding, 1);
                assert_eq!(client.rw_lock(share).force_unlock().await.unwrap(), 1);
                drop(client.rw_lock(share).try_write().await.unwrap().expect("free"));
            } else {
                let permits = client.semaphore(share, 2);
                assert!(permits.try_acquire_many(2).await.unwrap().is_none());
                assert_eq!(permits.usage().await.unwrap().used, 1);
            }
        }
    });
}

/// D46: of two holds with one token, one was left to the store. The mark kept both, so a writer waited for the whole
/// lease of the other one, whose process was dead.
#[test]
fn a_mark_of_one_read_keeps_no_other_read_of_a_dead_client() {
    run(async |fixture| {
        let client = fixture.client().await;
        let (mut reader, left) = reads_twice_and_leaves_one(fixture);
        let next = wait_for(&client, "write", 1).await;
        reader.kill9();
        let _ = granted(next).await.release().await.unwrap();
        let took = left.elapsed();
        assert!(took + Duration::from_millis(50) > SHORT && took < SHORT + AT_ONCE, "{took:?}");
    });
}

/// Programs that do not know of requests leave an empty mark, which keeps all holds with its token.
#[test]
fn an_empty_mark_of_a_former_version_keeps_all_reads_of_a_dead_client() {
    run(async |fixture| {
        let client = fixture.client().await;
        let (mut reader, left) = reads_twice_and_leaves_one(fixture);
        let [mark] = &fixture.files(".kept")[..] else { panic!("one token, one mark") };
        std::fs::write(fixture.dir.path().join("locks-clients").join(mark), "").unwrap();
        reader.kill9();
        let lock = client.rw_lock(JOB);
        until("one is over", async || lock.inspect().await.unwrap().holding == 1).await;
        assert!(left.elapsed() + Duration::from_millis(50) > SHORT, "{:?}", left.elapsed());
        assert!(lock.try_write().await.unwrap().is_none(), "it knows that the other one is kept");
        assert_eq!(lock.force_unlock().await.unwrap(), 1);
    });
}

/// For how long one of the two is left.
const SHORT: Duration = Duration::from_secs(2);

/// A worker that reads twice, and has left one hold to the store, and when.
fn reads_twice_and_leaves_one(fixture: &Fixture) -> (Worker, Instant) {
    let mut reader = fixture.worker();
    let mut tokens = Vec::new();
    for key in [0, 1] {
        reader.order(&format!("read {key} {JOB}"));
        tokens.push(reader.expect(&format!("granted {key}"), SOON).token());
    }
    assert_eq!(tokens[0], tokens[1], "neighbours read under one token");
    let began = Instant::now();
    reader.order(&format!("detach 0 {}", SHORT.as_millis()));
    reader.expect("detached 0", SOON);
    (reader, began)
}

/// The writer knew of a lease of 300 s when it looked.
#[test]
fn the_end_of_a_short_lease_lets_a_writer_in() {
    const SHORT: Duration = Duration::from_millis(1_500);
    run(async |fixture| {
        let (one, two, three) =
            (fixture.client().await, fixture.client().await, fixture.client().await);
        // A reader whose hold is cut short.
        let reads = one.rw_lock(JOB).read().await.unwrap().into_guard();
        let writer = wait_for(&two, "write", 1).await;
        let began = Instant::now();
        reads.detach_for(SHORT).await.unwrap();
        let writes = granted(writer).await;
        let took = began.elapsed();
        assert!(took + Duration::from_millis(50) > SHORT && took < SHORT + AT_ONCE, "{took:?}");
        // One with a short lease that comes in before another writer.
        let short = three.rw_lock(JOB).lease(SHORT);
        let reader = tokio::spawn(async move { short.read().await });
        line_is(&one, "read", 1).await;
        let writer = wait_for(&one, "write", 2).await;
        let began = Instant::now();
        let _ = writes.release().await.unwrap();
        let reads = crate::support::soon("the reader", reader).await.unwrap().unwrap();
        let _ = granted(writer).await.release().await.unwrap();
        let took = began.elapsed();
        assert!(took + Duration::from_millis(50) > SHORT && took < SHORT + AT_ONCE, "{took:?}");
        drop(reads);
    });
}

/// All kinds are listed, each with what it is.
#[test]
fn locks_with_shares_are_listed() {
    run(async |fixture| {
        let client = fixture.client().await;
        let fair = client.fair_lock("fair").lock().await.unwrap();
        let reads = client.rw_lock("rw").read().await.unwrap();
        let permit = client.semaphore("pool", 3).acquire_many(2).await.unwrap();
        let page = client.locks().next_page().await.unwrap().expect("all of them");
        let seen: Vec<_> =
            page.iter().map(|it| (it.name.as_bytes(), it.kind, it.held, it.waiting)).collect();
        // A plain lock looks like a fair one that nobody waits for.
        let all: [(&[u8], _); 3] =
            [(b"fair", None), (b"pool", Some(Kind::Semaphore)), (b"rw", Some(Kind::ReadWrite))];
        assert_eq!(seen, all.map(|(name, kind)| (name, kind, true, 0)));
        drop((fair, reads, permit));
    });
}

/// Each has a client of its own, as in as many processes.
#[test]
fn a_thousand_readers_of_one_lock() {
    const READERS: usize = 1_000;
    run(async |fixture| {
        let clients = [fixture.client().await, fixture.client().await];
        let mut readers = Vec::new();
        let began = Instant::now();
        for at in 0..READERS {
            readers.push(clients[at % 2].rw_lock(JOB).read().await.unwrap());
        }
        measured("a thousand readers, from two clients by turns", began.elapsed());
        let seen = clients[0].rw_lock(JOB).inspect().await.unwrap();
        assert_eq!((seen.holding, seen.queue_len), (READERS, 0));
        assert!(seen.holders.iter().all(|holder| holder.share == Share::Read));
        let writer = wait_for(&clients[1], "write", 1).await;
        let began = Instant::now();
        for reader in readers {
            assert!(!writer.is_finished());
            let _ = reader.release().await.unwrap();
        }
        let _ = granted(writer).await.release().await.unwrap();
        measured("a thousand readers end", began.elapsed());
    });
}
