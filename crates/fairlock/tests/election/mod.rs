//! Elections, where that needs futures, several clients or faults.

mod faults;

use std::time::Duration;

use super::api::{Client, Term};
use super::support::{At, SOON, Store, run, soon, until};
use fairlock::{ErrorKind, Leader, Release};
use fairlock_testkit::server::Generation;

macro_rules! on_stores {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[test]
            fn $case() {
                super::run(super::At::Memory, super::$case);
            })*
        }
        #[cfg(feature = "sqlite")]
        mod host {
            $(#[test]
            fn $case() {
                super::run(super::At::Host, super::$case);
            })*
        }
        mod redis70 {
            $(#[test]
            fn $case() {
                super::run(super::At::Server(super::Generation::Redis70), super::$case);
            })*
        }
    };
}

on_stores!(it_campaigns_again_after_a_loss, a_guard_of_the_lock_leads);

async fn leader(client: &Client) -> Option<Leader> {
    client.election("scheduler").leader().await.unwrap()
}

fn value(leader: &Leader) -> &str {
    std::str::from_utf8(leader.value.as_deref().expect("announced")).unwrap()
}

/// The closure of `run` is dropped when the term is lost, and runs again in the next.
async fn it_campaigns_again_after_a_loss(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let mut round = 0;
        let work = |term: Term| {
            round += 1;
            let (round, tell) = (round, tell.clone());
            async move {
                tell.send(term.token()).unwrap();
                if round == 1 {
                    std::future::pending::<()>().await;
                }
                round
            }
        };
        election.run("me", work).await.unwrap()
    });
    let first = soon("the first term", told.recv()).await.expect("it leads");
    assert!(other.fair_lock("scheduler").force_unlock().await.unwrap());
    assert_eq!(tokio::time::timeout(4 * SOON, running).await.expect("it ends").unwrap(), 2);
    assert!(told.recv().await.expect("it led again") > first);
    until("the end of the term", async || leader(&client).await.is_none()).await;
}

async fn a_guard_of_the_lock_leads(store: Store) {
    let client = store.client().await;
    let election = client.election("scheduler");
    let other = client.fair_lock("other").lock().await.unwrap();
    let refused = election.lead(other, "x").await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misuse);
    let guard = client.fair_lock("scheduler").try_lock().await.unwrap().unwrap();
    let term = election.lead(guard, "me").await.unwrap();
    assert_eq!(value(&leader(&client).await.unwrap()), "me");
    let guard = term.into_guard();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    // Dropped half way, a campaign leaves nothing behind.
    let term = election.campaign("me").await.unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(50), election.campaign("other")).await;
    assert!(dropped.is_err());
    assert_eq!(term.resign().await.unwrap(), Release::Released);
    until("nobody", async || leader(&client).await.is_none()).await;
}

/// Another program's key where the announcement would be: refused, and the term is given back.
#[test]
fn a_key_of_another_type_is_named() {
    run(At::Server(Generation::Redis70), async |store: Store| {
        let mut raw = store.raw().expect("a single server");
        raw.call(&["SET", "fairlock_leader:{scheduler}", "x"]);
        let client = store.client().await;
        let error = client.election("scheduler").campaign("x").await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.to_string().contains("fairlock_leader:{scheduler}"), "{error}");
        let lock = client.fair_lock("scheduler");
        until("it is given back", async || !lock.is_locked().await.unwrap()).await;
        assert_eq!(raw.call(&["GET", "fairlock_leader:{scheduler}"]).text(), "x");
    });
}
