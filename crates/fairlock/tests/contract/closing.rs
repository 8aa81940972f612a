//! The end of a client.

use std::time::Duration;

use super::super::api::Client;
use super::super::support::{Store, is_free, no_beats, queue_is, soon, wait_behind};
use fairlock::{Config, ConnectionState, ErrorKind, GuardState, Release};

pub(super) async fn calls_after_it_are_closed(store: Store) {
    let client = store.client().await;
    let clone = client.clone();
    let fair = client.fair_lock("job");
    let guard = client.plain_lock("held").lock().await.unwrap();
    soon("the shutdown", client.shutdown()).await;
    for lock in [fair, clone.fair_lock("new"), clone.plain_lock("new")] {
        for error in super::errors::of_every_call(&lock).await {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
    }
    assert_eq!(clone.ping().await.unwrap_err().kind(), ErrorKind::Closed);
    let error = guard.reenter().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!((error.lock(), error.owner()), (Some(guard.name()), Some(guard.owner())));
    // A second shutdown has nothing to do.
    soon("the shutdown", clone.shutdown()).await;
}

pub(super) async fn waiters_end(store: Store) {
    let client = store.client_with(no_beats).await;
    let guard = client.fair_lock("fair").lock().await.unwrap();
    let plain_guard = client.plain_lock("plain").lock().await.unwrap();
    let (closing, look) = if !store.is_memory() {
        (store.client_with(no_beats).await, Some(client.fair_lock("fair")))
    } else {
        (client.clone(), None)
    };
    let mut waiters = Vec::new();
    for place in 1..=5 {
        waiters.push(wait_behind(&closing.fair_lock("fair"), place).await);
    }
    let plain = closing.plain_lock("plain");
    waiters.push(tokio::spawn(async move { plain.lock().await }));
    let timed = closing.plain_lock("plain");
    let timed = tokio::spawn(async move { timed.try_lock_for(Duration::from_secs(90)).await });
    closing.ping().await.unwrap();
    soon("the shutdown", closing.shutdown()).await;
    for waiter in waiters {
        let error = soon("the end of the wait", waiter).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    let error = soon("the end of the wait", timed).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    if let Some(look) = look {
        // Shutdown waits until they have left the queue.
        queue_is(&look, 0).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(plain_guard.release().await.unwrap(), Release::Released);
        is_free(&look).await;
    }
}

/// After the shutdown nothing renews the hold; the guard is Lost in time, and can be released.
pub(super) async fn a_held_guard_ends_with_its_lease(store: Store) {
    let short = |config: Config| config.watchdog_lease(Duration::from_secs(3));
    let client = store.client_with(short).await;
    let guard = client.fair_lock("job").lock().await.unwrap();
    let released = client.fair_lock("other").lock().await.unwrap();
    soon("the shutdown", client.shutdown()).await;
    assert_eq!(released.release().await.unwrap(), Release::Released);
    soon("the end of the lease", guard.lost()).await;
    assert_eq!(guard.state(), GuardState::Lost);
    let error = guard.ensure_valid().unwrap_err();
    assert!(error.to_string().contains("its client was shut down"), "{error}");
    drop(guard);
    if !store.is_memory() {
        is_free(&store.client().await.fair_lock("job")).await;
        is_free(&store.client().await.fair_lock("other")).await;
    }
}

pub(super) async fn releases_are_waited_for(store: Store) {
    let look = store.client_with(no_beats).await;
    for _ in 0..10 {
        let client =
            if !store.is_memory() { store.client_with(no_beats).await } else { look.clone() };
        let mut guards = Vec::new();
        for number in 0..10 {
            guards.push(client.fair_lock(format!("job {number}")).lock().await.unwrap());
        }
        drop(guards);
        if store.is_memory() {
            continue;
        }
        soon("the shutdown", client.shutdown()).await;
        for number in 0..10 {
            assert!(!look.fair_lock(format!("job {number}")).is_locked().await.unwrap());
        }
    }
}

pub(super) async fn the_connection_can_be_watched(store: Store) {
    let client: Client = store.client().await;
    let mut connection = client.connection();
    assert_eq!(*connection.borrow_and_update(), ConnectionState::Connected);
    if let Some(server) = store.server() {
        server.kill9();
        let down = connection.wait_for(|state| *state == ConnectionState::Reconnecting);
        soon("the connection is lost", down).await.unwrap();
        server.restart();
        let up = connection.wait_for(|state| *state == ConnectionState::Connected);
        soon("the connection is back", up).await.unwrap();
        client.ping().await.unwrap();
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
    }
    client.shutdown().await;
    let closed = connection.wait_for(|state| *state == ConnectionState::Closed);
    soon("the end", closed).await.unwrap();
}
