//! Latches.

use std::time::Duration;

use super::super::api::Client;
use super::super::support::{Store, soon};
use fairlock::{Error, ErrorKind, Latch, Opened};
use tokio::task::JoinHandle;

const NOT_NOW: Duration = Duration::from_millis(50);

/// Waits in a task, which has looked at least once when this returns.
async fn waiting(latch: &Latch) -> JoinHandle<Result<Opened, Error>> {
    let own = latch.clone();
    let task = tokio::spawn(async move { own.wait().await });
    tokio::time::sleep(5 * NOT_NOW).await;
    assert!(!task.is_finished());
    task
}

async fn opened(task: JoinHandle<Result<Opened, Error>>) -> Opened {
    soon("the end of the wait", task).await.unwrap().unwrap()
}

pub(super) async fn it_opens_at_zero(store: Store) {
    let (one, two) = (store.client().await, store.client().await);
    let (setter, latch) = (one.latch("import"), two.latch("import"));
    assert_eq!(latch.wait().await.unwrap(), Opened::Gone, "never set");
    for _ in 0..2 {
        assert!(setter.try_set(3).await.unwrap());
        assert!(!latch.try_set(7).await.unwrap(), "it is set");
        assert_eq!(latch.count().await.unwrap(), 3);
        let waiters = [waiting(&latch).await, waiting(&latch).await, waiting(&setter).await];
        assert_eq!(setter.count_down().await.unwrap(), 2);
        assert_eq!(latch.count_down().await.unwrap(), 1);
        tokio::time::sleep(NOT_NOW).await;
        assert!(!waiters[0].is_finished());
        assert_eq!(latch.count_down().await.unwrap(), 0);
        for waiter in waiters {
            assert_eq!(opened(waiter).await, Opened::CountedDown);
        }
        assert_eq!(latch.count_down().await.unwrap(), 0, "it stays open");
        assert_eq!((latch.count().await.unwrap(), setter.count().await.unwrap()), (0, 0));
        assert_eq!(latch.wait().await.unwrap(), Opened::CountedDown);
        assert_eq!(latch.wait_for(Duration::ZERO).await.unwrap(), Some(Opened::CountedDown));
    }
}

pub(super) async fn a_timed_wait_ends(store: Store) {
    let latch = store.client().await.latch("import");
    assert_eq!(latch.wait_for(Duration::ZERO).await.unwrap(), Some(Opened::Gone));
    latch.try_set(1).await.unwrap();
    for time in [Duration::ZERO, NOT_NOW] {
        assert_eq!(latch.wait_for(time).await.unwrap(), None);
    }
    let own = latch.clone();
    let minute = Duration::from_secs(60);
    let waiter = tokio::spawn(async move { own.wait_for(minute).await });
    tokio::time::sleep(NOT_NOW).await;
    latch.count_down().await.unwrap();
    let ended = soon("the count-down", waiter).await.unwrap().unwrap();
    assert_eq!(ended, Some(Opened::CountedDown));
}

pub(super) async fn a_deleted_latch_is_gone(store: Store) {
    let latch = store.client().await.latch("import");
    assert!(!latch.delete().await.unwrap());
    latch.try_set(2).await.unwrap();
    let waiter = waiting(&latch).await;
    assert!(latch.delete().await.unwrap());
    assert_eq!(opened(waiter).await, Opened::Gone);
    assert_eq!(latch.count().await.unwrap(), 0);
    assert_eq!(latch.wait().await.unwrap(), Opened::Gone);
}

/// Whoever waits for a latch does not wait for the next one of its name.
pub(super) async fn a_latch_that_is_set_anew_is_another(store: Store) {
    let latch = store.client().await.latch("import");
    latch.try_set(1).await.unwrap();
    let former = waiting(&latch).await;
    latch.delete().await.unwrap();
    latch.try_set(9).await.unwrap();
    let next = waiting(&latch).await;
    assert_eq!(opened(former).await, Opened::Gone);
    assert!(!next.is_finished());
    for _ in 0..9 {
        latch.count_down().await.unwrap();
    }
    assert_eq!(opened(next).await, Opened::CountedDown);
}

pub(super) async fn bad_input_is_refused(store: Store) {
    let client = store.client().await;
    let latch = client.latch("import");
    for count in [0, 1 << 53, u64::MAX] {
        let refused = latch.try_set(count).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Misuse, "{count}");
    }
    let most = (1 << 53) - 1;
    assert!(latch.try_set(most).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), most - 1);
    for name in ["", "redisson_lock_queue:{x}"] {
        let refused = client.latch(name).wait().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Misuse, "{name}");
    }
}

pub(super) async fn a_latch_is_no_lock(store: Store) {
    let client = store.client().await;
    let (latch, lock) = (client.latch("import"), client.fair_lock("import"));
    latch.try_set(1).await.unwrap();
    assert_eq!(lock.try_lock().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert!(client.simple_lock("import").try_lock().await.unwrap().is_none());
    let mut locks = client.locks();
    while let Some(page) = locks.next_page().await.unwrap() {
        assert!(page.is_empty(), "{page:?}");
    }
    latch.count_down().await.unwrap();
    let guard = lock.lock().await.unwrap();
    for refused in [
        latch.try_set(1).await.map(drop),
        latch.count_down().await.map(drop),
        latch.count().await.map(drop),
        latch.wait().await.map(drop),
        latch.delete().await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    }
    let _ = guard.release().await.unwrap();
    let simple = client.simple_lock("import").lock().await.unwrap();
    assert_eq!(latch.try_set(1).await.unwrap_err().kind(), ErrorKind::WrongType);
    let _ = simple.release().await.unwrap();
    assert!(latch.try_set(1).await.unwrap());
}

pub(super) async fn a_dropped_wait_leaves_nothing(store: Store) {
    let client = store.client().await;
    let latch = client.latch("import");
    latch.try_set(1).await.unwrap();
    // On a Cluster the first one that listens to a node starts a task that stays.
    let first = waiting(&latch).await;
    latch.count_down().await.unwrap();
    assert_eq!(opened(first).await, Opened::CountedDown);
    latch.try_set(1).await.unwrap();
    let tasks = client.background_tasks();
    let waiters = [waiting(&latch).await, waiting(&latch).await];
    for waiter in waiters {
        waiter.abort();
    }
    let ended = async || client.background_tasks() <= tasks;
    super::super::support::until("the task that looks ends", ended).await;
    // The next one finds everything as it was.
    let waiter = waiting(&latch).await;
    latch.count_down().await.unwrap();
    assert_eq!(opened(waiter).await, Opened::CountedDown);
}

pub(super) async fn a_shutdown_ends_the_wait(store: Store) {
    let client = store.client().await;
    let latch = client.latch("import");
    latch.try_set(1).await.unwrap();
    let waiter = waiting(&latch).await;
    Client::shutdown(client).await;
    let ended = soon("the end", waiter).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(latch.count_down().await.unwrap_err().kind(), ErrorKind::Closed);
}

pub(super) async fn many_wait_and_many_count_down(store: Store) {
    let clients = [store.client().await, store.client().await, store.client().await];
    let of = |at: usize| clients[at % clients.len()].latch("import");
    of(0).try_set(100).await.unwrap();
    let waiters = (0..200).map(of).map(|latch| tokio::spawn(async move { latch.wait().await }));
    let waiters: Vec<_> = waiters.collect();
    let counts = (0..100).map(of).map(|it| tokio::spawn(async move { it.count_down().await }));
    let counts: Vec<_> = counts.collect();
    let mut left = Vec::new();
    for count in counts {
        left.push(count.await.unwrap().unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, (0..100).collect::<Vec<_>>(), "each counted once");
    for waiter in waiters {
        assert_eq!(opened(waiter).await, Opened::CountedDown);
    }
}
