//! Read-write locks and semaphores.

use std::time::Duration;

use super::super::api::{Client, Guard, RwLock, Semaphore};
use super::super::support::{Store, soon, until};
use fairlock::{ErrorKind, GuardState, LockStatus, LostReason, Release, ShardedPubSub, Share};
use tokio::task::JoinHandle;

const NOT_NOW: Duration = Duration::from_millis(50);

/// Resolves when so many wait.
async fn waiting(client: &Client, name: &str, count: usize) {
    let lock = client.rw_lock(name);
    until("the line", async || lock.inspect().await.unwrap().queue_len == count).await;
}

async fn status(lock: &RwLock) -> LockStatus {
    lock.inspect().await.unwrap()
}

fn shares(status: &LockStatus) -> Vec<Share> {
    status.queue.iter().map(|waiter| waiter.share).collect()
}

/// Reads or writes in a task, which is in the line as the `place`th when this returns.
async fn in_line(client: &Client, writes: bool, place: usize) -> JoinHandle<Guard> {
    let lock = client.rw_lock("catalogue");
    let task = tokio::spawn(async move {
        match writes {
            true => lock.write().await.unwrap().into_guard(),
            false => lock.read().await.unwrap().into_guard(),
        }
    });
    waiting(client, "catalogue", place).await;
    task
}

pub(super) async fn readers_share_and_writers_exclude(store: Store) {
    let client = store.client().await;
    let lock = client.rw_lock("catalogue");
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert_eq!(one.token(), two.token());
    assert_ne!(one.owner(), two.owner());
    assert!(lock.try_write().await.unwrap().is_none());
    let seen = status(&lock).await;
    assert_eq!((seen.holding, seen.holders.len()), (2, 2));
    assert!(seen.holders.iter().all(|it| it.share == Share::Read && it.ttl.is_some()));
    assert_eq!(one.release().await.unwrap(), Release::Released);
    assert_eq!(two.release().await.unwrap(), Release::Released);
    let writing = lock.try_write().await.unwrap().unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    drop(writing);
    let reading = lock.read().await.unwrap();
    drop(reading);
    assert_eq!(status(&lock).await.holding, 0);
}

pub(super) async fn neighbours_read_together_and_in_turn(store: Store) {
    let client = store.client().await;
    let lock = client.rw_lock("catalogue");
    let first = lock.write().await.unwrap();
    let token = first.token();
    let readers = [in_line(&client, false, 1).await, in_line(&client, false, 2).await];
    let writer = in_line(&client, true, 3).await;
    let last = in_line(&client, false, 4).await;
    let wanted = [Share::Read, Share::Read, Share::Whole, Share::Read];
    assert_eq!(shares(&status(&lock).await), wanted);
    assert!(lock.try_read().await.unwrap().is_none(), "others wait");
    let _ = first.release().await.unwrap();
    let [one, two] = readers;
    let (one, two) = (soon("the first", one).await.unwrap(), soon("with it", two).await.unwrap());
    assert!(one.token() == two.token() && one.token() > token);
    tokio::time::sleep(NOT_NOW).await;
    assert!(!writer.is_finished() && !last.is_finished());
    let (phase, _) = (one.token(), drop(one));
    drop(two);
    let writing = soon("the writer", writer).await.unwrap();
    assert!(writing.token() > phase && !last.is_finished());
    let _ = writing.release().await.unwrap();
    drop(soon("the last", last).await.unwrap());
}

/// One message each would be three hundred calls; they come in parts of one operation.
pub(super) async fn a_long_line_of_readers_comes_in(store: Store) {
    let client = store.client().await;
    let writing = client.rw_lock("catalogue").write().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..300 {
        let lock = client.rw_lock("catalogue");
        readers.push(tokio::spawn(async move { lock.read().await.unwrap() }));
    }
    waiting(&client, "catalogue", 300).await;
    let _ = writing.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(soon("a reader", reader).await.unwrap());
    }
    assert_eq!(status(&client.rw_lock("catalogue")).await.holding, 300);
}

pub(super) async fn timed_waits_end(store: Store) {
    let client = store.client().await;
    let lock = client.rw_lock("catalogue");
    let reading = lock.read().await.unwrap();
    assert!(lock.try_write_for(NOT_NOW).await.unwrap().is_none());
    let another = soon("to read", lock.try_read_for(NOT_NOW)).await.unwrap();
    assert!(another.is_some(), "the writer that gave up is not in the way");
    drop((reading, another));
    let writing = lock.write().await.unwrap();
    assert!(lock.try_read_for(NOT_NOW).await.unwrap().is_none());
    assert_eq!(status(&lock).await.queue_len, 0);
    drop(writing);
}

/// B2: nothing is freed when a waiter goes, and those behind it come in all the same.
pub(super) async fn readers_come_in_when_the_writer_before_them_goes(store: Store) {
    let client = store.client().await;
    let reading = client.rw_lock("catalogue").read().await.unwrap();
    let writer = in_line(&client, true, 1).await;
    let reader = in_line(&client, false, 2).await;
    writer.abort();
    drop(soon("to read", reader).await.unwrap());
    drop(reading);
    drop(client.rw_lock("catalogue").write().await.unwrap());
}

pub(super) async fn what_nobody_waits_for_is_given_back(store: Store) {
    let client = store.client().await;
    let pool = client.semaphore("pool", 2);
    let held = pool.acquire_many(2).await.unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.acquire().await })
        })
        .collect();
    until("the line", async || pool.usage().await.unwrap().waiting == 10).await;
    waiters.iter().for_each(JoinHandle::abort);
    drop(held);
    until("nothing", async || {
        let usage = pool.usage().await.unwrap();
        (usage.used, usage.waiting) == (0, 0)
    })
    .await;
}

pub(super) async fn permits_are_counted(store: Store) {
    let pool = store.client().await.semaphore("pool", 3);
    let two = pool.acquire_many(2).await.unwrap();
    let one = pool.acquire().await.unwrap();
    assert!(one.token() > two.token(), "each has its own");
    assert!(pool.try_acquire().await.unwrap().is_none());
    assert!(pool.try_acquire_for(NOT_NOW).await.unwrap().is_none());
    assert_eq!(pool.usage().await.unwrap().used, 3);
    let _ = two.release().await.unwrap();
    assert!(pool.try_acquire_many(3).await.unwrap().is_none());
    let two = pool.try_acquire_many(2).await.unwrap().unwrap();
    let used = |usage: fairlock::Usage| (usage.used, usage.limit, usage.limits);
    assert_eq!(used(pool.usage().await.unwrap()), (3, 3, Some((3, 3))));
    drop((one, two));
    assert_eq!(used(pool.usage().await.unwrap()), (0, 3, None));
}

async fn takes(pool: &Semaphore, n: u32, place: usize) -> JoinHandle<Guard> {
    let (own, look) = (pool.clone(), pool.clone());
    let task = tokio::spawn(async move { own.acquire_many(n).await.unwrap().into_guard() });
    until("the line", async || look.usage().await.unwrap().waiting == place).await;
    task
}

pub(super) async fn who_wants_much_waits_in_line(store: Store) {
    let pool = store.client().await.semaphore("pool", 3);
    let (one, two) = (pool.acquire().await.unwrap(), pool.acquire_many(2).await.unwrap());
    let all = takes(&pool, 3, 1).await;
    let next = takes(&pool, 1, 2).await;
    drop(two);
    tokio::time::sleep(NOT_NOW).await;
    assert!(!all.is_finished() && !next.is_finished(), "two are free, and the first wants three");
    drop(one);
    let all = soon("three", all).await.unwrap();
    assert!(!next.is_finished());
    drop(all);
    drop(soon("one", next).await.unwrap());
}

pub(super) async fn limits_may_differ(store: Store) {
    let client = store.client().await;
    let (few, more) = (client.semaphore("pool", 2), client.semaphore("pool", 4));
    let held = more.acquire_many(2).await.unwrap();
    assert!(few.try_acquire().await.unwrap().is_none(), "two are in use, and it bears two");
    let another = more.try_acquire().await.unwrap().unwrap();
    drop(held);
    let third = few.acquire().await.unwrap();
    let usage = few.usage().await.unwrap();
    assert_eq!((usage.used, usage.limit, usage.limits), (2, 2, Some((2, 4))));
    // The limit of one that only waits, for all that is named.
    let wide = client.semaphore("pool", 9);
    let waits = tokio::spawn(async move { drop(wide.acquire_many(9).await.unwrap()) });
    until("it waits", async || few.usage().await.unwrap().waiting == 1).await;
    let usage = few.usage().await.unwrap();
    assert_eq!(usage.limits, Some((2, 9)));
    drop((another, third));
    soon("all of it", waits).await.unwrap();
}

pub(super) async fn bad_input_is_refused(store: Store) {
    let client = store.client().await;
    let pool = client.semaphore("pool", 2);
    for error in [
        pool.acquire_many(0).await.unwrap_err(),
        pool.try_acquire_many(3).await.unwrap_err(),
        client.semaphore("pool", 0).acquire().await.unwrap_err(),
        client.rw_lock("").read().await.unwrap_err(),
        pool.clone().lease(Duration::from_millis(1)).acquire().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    }
    assert_eq!(client.locks().next_page().await.unwrap().unwrap_or_default(), []);
    let (permit, reading) =
        (pool.acquire().await.unwrap(), client.rw_lock("catalogue").read().await.unwrap());
    let fair = client.fair_lock("job").lock().await.unwrap();
    for error in [
        client.rw_lock("pool").read().await.unwrap_err(),
        client.rw_lock("job").write().await.unwrap_err(),
        client.semaphore("catalogue", 2).acquire().await.unwrap_err(),
        client.semaphore("job", 2).usage().await.unwrap_err(),
        client.fair_lock("catalogue").lock().await.unwrap_err(),
        client.plain_lock("pool").try_lock().await.unwrap_err(),
        client.simple_lock("pool").lock().await.unwrap_err(),
        client.fair_lock("pool").force_unlock().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    for guard in [permit.into_guard(), reading.into_guard(), fair] {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    drop(client.semaphore("catalogue", 2).acquire().await.unwrap());
    drop(client.fair_lock("pool").lock().await.unwrap());
}

pub(super) async fn owners_enter_what_they_hold(store: Store) {
    let client = store.client().await;
    let owner = client.owner();
    let lock = client.rw_lock("catalogue").owned_by(&owner);
    let reading = lock.read().await.unwrap();
    let waiter = in_line(&client, true, 1).await;
    let again = soon("its own", lock.read()).await.unwrap();
    assert_eq!((again.token(), again.hold_count()), (reading.token(), 2));
    let error = soon("a refusal", lock.write()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    assert_eq!(again.release().await.unwrap(), Release::StillHeld(1));
    assert_eq!(reading.release().await.unwrap(), Release::Released);
    drop(soon("the writer", waiter).await.unwrap());
    let writing = lock.write().await.unwrap();
    let (twice, reads) = (lock.write().await.unwrap(), lock.read().await.unwrap());
    assert_eq!((reads.token(), reads.hold_count()), (writing.token(), 3));
    drop((writing, twice, reads));
    let pool = client.semaphore("pool", 3).owned_by(&owner);
    let two = pool.acquire_many(2).await.unwrap();
    let same = pool.acquire_many(2).await.unwrap();
    assert_eq!((same.token(), pool.usage().await.unwrap().used), (two.token(), 2));
    let error = pool.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    drop((two, same));
}

/// D59: Java and Curator downgrade like this. The owner excluded all other readers, and could write once more, although
/// it had nothing but a guard that reads.
pub(super) async fn the_last_guard_that_writes_leaves_a_reader(store: Store) {
    let client = store.client().await;
    let own = client.rw_lock("catalogue").owned_by(&client.owner());
    let other = client.rw_lock("catalogue");
    for awaited in [true, false] {
        let (writing, reading) = (own.write().await.unwrap(), own.read().await.unwrap());
        let again = own.write().await.unwrap();
        assert_eq!(again.release().await.unwrap(), Release::StillHeld(2));
        assert!(other.try_read().await.unwrap().is_none(), "it writes on");
        let reader = in_line(&client, false, 1).await;
        if awaited {
            assert_eq!(writing.release().await.unwrap(), Release::StillHeld(1));
        } else {
            drop(writing);
        }
        let beside = soon("the reader", reader).await.unwrap();
        assert_eq!((beside.token(), reading.hold_count()), (reading.token(), 1));
        let error = soon("a refusal", own.write()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert!(other.try_write().await.unwrap().is_none());
        let twice = own.read().await.unwrap();
        assert_eq!(twice.release().await.unwrap(), Release::StillHeld(1));
        drop(beside);
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        drop(soon("to write", other.write()).await.unwrap());
    }
    // The end of the reader may arrive before the change that the end of the writer makes.
    for _ in 0..10 {
        let (writing, reading) = (own.write().await.unwrap(), own.read().await.unwrap());
        let (written, read) = tokio::join!(writing.release(), reading.release());
        assert_ne!(written.unwrap(), Release::Lost);
        assert_ne!(read.unwrap(), Release::Lost);
    }
}

/// Each of them is told, and told why.
pub(super) async fn force_unlock_takes_every_share(store: Store) {
    // With sharded messages a holder does not listen on its lock's channel.
    let client = store.client_with(|config| config.sharded_pubsub(ShardedPubSub::Off)).await;
    let lock = client.rw_lock("catalogue");
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let writer = in_line(&client, true, 1).await;
    assert_eq!(lock.force_unlock().await.unwrap(), 2);
    for guard in [&one, &two] {
        soon("the loss", guard.lost()).await;
        assert_eq!(guard.lost_reason(), Some(LostReason::Forced));
    }
    drop(soon("the writer", writer).await.unwrap());
    assert_eq!(one.release().await.unwrap(), Release::Lost);
    drop(two);
    assert_eq!(lock.force_unlock().await.unwrap(), 0);
}

pub(super) async fn leases_end_alone(store: Store) {
    let client = store.client().await;
    // Long enough for the next to be in line.
    let lease = Duration::from_secs(3);
    let pool = client.semaphore("pool", 2);
    let short = pool.clone().lease(lease).acquire().await.unwrap();
    let renewed = pool.acquire().await.unwrap();
    let next = takes(&pool, 1, 1).await;
    let next = soon("the permit", next).await.unwrap();
    assert_eq!((short.state(), renewed.state()), (GuardState::Lost, GuardState::Held));
    assert_eq!(short.release().await.unwrap(), Release::Lost);
    assert_eq!(pool.usage().await.unwrap().used, 2, "it gave nothing back");
    drop((next, renewed));
}
