//! Elections, where that needs futures, several clients or faults.

mod faults;

use std::time::Duration;

use super::api::{Client, Term};
use super::support::{At, SOON, Store, run, soon, until};
use fairlock::{ErrorKind, Leader, LostReason, Release};
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

on_stores!(
    it_campaigns_again_after_a_loss,
    a_run_ends_with_its_closure,
    a_guard_of_the_lock_leads,
    a_guard_leads_again,
    a_shutdown_ends_what_waits,
    a_blocked_runtime_ends_its_term,
);

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

/// What the closure returns is returned, an error of its own as well: nothing is run again, and the term is over. A panic goes
/// through, and gives the term back, as does dropping the future of `run`.
async fn a_run_ends_with_its_closure(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler");
    let mut rounds = 0;
    let ran = election.run("me", |term: Term| {
        rounds += 1;
        async move { Err::<(), _>(term.token()) }
    });
    let refused = soon("its end", ran).await.unwrap().unwrap_err();
    assert_eq!(rounds, 1);
    let next = soon("the next", other.election("scheduler").campaign("next")).await.unwrap();
    assert!(next.token() > refused);
    assert_eq!(next.resign().await.unwrap(), Release::Released);

    let again = election.clone();
    let running = tokio::spawn(async move {
        let work = |_term: Term| async { panic!("as the test wants it") };
        again.run::<(), _, _>("me", work).await
    });
    assert!(soon("its end", running).await.unwrap_err().is_panic());
    let next = soon("the next", other.election("scheduler").campaign("next")).await.unwrap();
    assert_eq!(next.resign().await.unwrap(), Release::Released);

    let begun = tokio::sync::Notify::new();
    let ran = election.run("me", async |_term| {
        begun.notify_one();
        std::future::pending::<()>().await;
    });
    tokio::select! {
        _ = ran => unreachable!("it does not end"),
        () = begun.notified() => {}
    }
    let next = soon("the next", other.election("scheduler").campaign("next")).await.unwrap();
    assert_eq!(next.resign().await.unwrap(), Release::Released);
}

/// Candidates and observers are told, a term can still be given back, and others go on.
async fn a_shutdown_ends_what_waits(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler");
    let term = election.campaign("one").await.unwrap();
    let waits = {
        let election = election.clone();
        tokio::spawn(async move { election.campaign("two").await })
    };
    let lock = client.fair_lock("scheduler");
    until("it waits", async || lock.inspect().await.unwrap().queue_len == 1).await;
    let mut observer = election.observe().await.unwrap();
    assert_eq!(observer.changed().await.unwrap().unwrap().term, term.token());
    let looks = tokio::spawn(async move { observer.changed().await });
    tokio::task::yield_now().await;
    soon("the shutdown", client.shutdown()).await;
    let began = std::time::Instant::now();
    let kind = |outcome: Result<Option<Leader>, fairlock::Error>| outcome.unwrap_err().kind();
    assert_eq!(kind(soon("its end", looks).await.unwrap()), ErrorKind::Closed);
    assert!(began.elapsed() < Duration::from_secs(4), "it is told, and does not look");
    let refused = soon("its end", waits).await.unwrap().map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert_eq!(kind(election.leader().await), ErrorKind::Closed);
    assert_eq!(election.observe().await.map(drop).unwrap_err().kind(), ErrorKind::Closed);
    let refused = election.campaign("three").await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert_eq!(term.proclaim("four").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(term.resign().await.unwrap(), Release::Released);
    if !store.is_memory() {
        let next = soon("the next", other.election("scheduler").campaign("next")).await.unwrap();
        assert_eq!(next.resign().await.unwrap(), Release::Released);
    }
}

/// The program hangs in its only thread, and its term ends: the client has a thread of its own.
async fn a_blocked_runtime_ends_its_term(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let patience = Duration::from_millis(300);
    let election = client.election("scheduler").while_touched(patience);
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let hangs = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let term = election.campaign("hangs").await.unwrap();
            tell.send(term.token()).unwrap();
            // What no program should do.
            let _ = wait.recv();
            assert_eq!(term.lost_reason(), Some(LostReason::Untouched));
            assert_eq!(term.resign().await.unwrap(), Release::Lost);
        });
    });
    let hung = soon("it leads", told).await.unwrap();
    let next = soon("the next", other.election("scheduler").campaign("next")).await.unwrap();
    assert!(next.token() > hung);
    go_on.send(()).unwrap();
    tokio::task::spawn_blocking(move || hangs.join().unwrap()).await.unwrap();
    next.ensure_valid().unwrap();
    assert_eq!(next.resign().await.unwrap(), Release::Released);
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

/// A guard that has led leads once more, and a second guard of the same hold beside it. Each began to count its announcements
/// anew, so the store took the later ones for copies of former ones: the new value was never shown, and nobody was told.
async fn a_guard_leads_again(store: Store) {
    let client = store.client().await;
    let election = client.election("scheduler");
    let term = election.campaign("one").await.unwrap();
    term.proclaim("two").await.unwrap();
    let mut observer = election.observe().await.unwrap();
    assert_eq!(value(&observer.changed().await.unwrap().unwrap()), "two");
    let term = election.lead(term.into_guard(), "three").await.unwrap();
    assert_eq!(value(&leader(&client).await.unwrap()), "three");
    assert_eq!(value(&soon("a change", observer.changed()).await.unwrap().unwrap()), "three");
    let beside = election.lead(term.reenter().await.unwrap(), "four").await.unwrap();
    assert_eq!(value(&leader(&client).await.unwrap()), "four");
    assert_eq!(beside.resign().await.unwrap(), Release::StillHeld(1));
    term.proclaim("five").await.unwrap();
    assert_eq!(value(&leader(&client).await.unwrap()), "five");
    assert_eq!(term.resign().await.unwrap(), Release::Released);
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
