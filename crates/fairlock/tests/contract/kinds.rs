//! A name that is used as several kinds, one after the other.

use crate::support::{Store, until};
use fairlock::{Check, Client, Reaction};

fn of_kinds(client: &Client) -> Vec<String> {
    let warnings = client.warnings().into_iter();
    warnings.filter(|it| it.check() == Check::Kind).map(|it| it.to_string()).collect()
}

/// D54: a run with another kind passed all tests, and failed in the one night in which both were used at once.
pub(super) async fn another_kind_than_the_last_is_warned_of_once(store: Store) {
    let fair = store.client().await;
    for _ in 0..2 {
        let _ = fair.fair_lock("encode").lock().await.unwrap().release().await.unwrap();
        let _ = fair.fair_lock("other").lock().await.unwrap().release().await.unwrap();
    }
    fair.shutdown().await;
    if store.is_memory() {
        return;
    }
    let pool = store.client().await;
    for _ in 0..2 {
        let _ = pool.semaphore("encode", 3).acquire().await.unwrap().release().await.unwrap();
        let _ = pool.fair_lock("other").lock().await.unwrap().release().await.unwrap();
    }
    until("a warning", async || !of_kinds(&pool).is_empty()).await;
    let warnings = of_kinds(&pool);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.starts_with("encode: used as kind `semaphore`, but last used as kind `fair`;"),
        "{warning}"
    );
    pool.shutdown().await;
    // What it was last is a semaphore now. A shutdown waits for the comparison.
    let again = store.client().await;
    let _ = again.semaphore("encode", 3).acquire().await.unwrap().release().await.unwrap();
    let seen = again.clone();
    again.shutdown().await;
    assert_eq!(of_kinds(&seen), [""; 0]);
    let silent = store.client_with(|config| config.on_check(Check::Kind, Reaction::Ignore)).await;
    let _ = silent.rw_lock("encode").write().await.unwrap().release().await.unwrap();
    let seen = silent.clone();
    silent.shutdown().await;
    assert_eq!(of_kinds(&seen), [""; 0]);
}

/// The same in one client.
pub(super) async fn a_client_that_mixes_kinds_is_warned_of_once(store: Store) {
    let client = store.client().await;
    for _ in 0..3 {
        let _ = client.fair_lock("encode").lock().await.unwrap().release().await.unwrap();
        let _ = client.semaphore("encode", 3).acquire().await.unwrap().release().await.unwrap();
    }
    let seen = client.clone();
    client.shutdown().await;
    assert_eq!(of_kinds(&seen).len(), 1, "{:?}", seen.warnings());
}
