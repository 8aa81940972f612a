//! Elections, where that needs futures, several clients or faults.

mod faults;

use std::time::{Duration, Instant};

use super::api::{Client, Term};
use super::support::{At, SOON, Store, run, runtime, soon, until};
use fairlock::{Config, ErrorKind, Leader, LostReason, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};

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
    let began = Instant::now();
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

fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Store) -> F) {
    run(At::Memory, &test);
    #[cfg(feature = "sqlite")]
    run(At::Host, &test);
    run(At::Server(Generation::Redis70), &test);
}

/// The number under which a single server knows the last announcement.
fn change(store: &Store) -> Option<String> {
    let mut raw = store.raw()?;
    Some(raw.call(&["HGET", "fairlock_leader:{scheduler}", "change"]).text().to_owned())
}

/// The value is shown to this observer, which has it by a message: not by its next look.
async fn shows(observer: &mut fairlock::Observer, expected: &str) {
    loop {
        let seen = soon("a change", observer.changed()).await.unwrap().expect("it leads");
        if value(&seen) == expected {
            return;
        }
    }
}

/// The numbers of the changes began at 1 again with each term of one hold. The first value of the second term had the number
/// of the first one's and was told to nobody; after several changes it was stale, announced nowhere, and `lead` succeeded.
#[test]
fn a_hold_that_leads_again_is_seen() {
    on_each_store(leads_again);
}

async fn leads_again(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler");
    let mut term = election.campaign("0").await.unwrap();
    let mut observer = other.election("scheduler").observe().await.unwrap();
    shows(&mut observer, "0").await;
    let mut said = 1;
    for round in 1..=3 {
        term = election.lead(term.into_guard(), round.to_string()).await.unwrap();
        shows(&mut observer, &round.to_string()).await;
        for more in 0..round {
            term.proclaim(format!("{round}+{more}")).await.unwrap();
        }
        shows(&mut observer, &format!("{round}+{}", round - 1)).await;
        said += 1 + round;
        assert!(change(&store).is_none_or(|change| change == said.to_string()));
    }
    assert_eq!(term.resign().await.unwrap(), Release::Released);
}

/// Two terms of one hold each announced their own value under the same number, and repeated it every 20 s.
#[test]
fn terms_of_one_hold_announce_one_value() {
    on_each_store(several_terms);
}

async fn several_terms(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let election = client.election("scheduler");
    let first = election.campaign("first").await.unwrap();
    let mut observer = other.election("scheduler").observe().await.unwrap();
    shows(&mut observer, "first").await;
    let second = election.lead(first.reenter().await.unwrap(), "second").await.unwrap();
    assert_eq!(second.token(), first.token());
    shows(&mut observer, "second").await;
    // At once: whichever comes last is announced, by all.
    let (one, two) = tokio::join!(first.proclaim("one"), second.proclaim("two"));
    one.and(two).unwrap();
    first.proclaim("last").await.unwrap();
    shows(&mut observer, "last").await;
    assert!(change(&store).is_none_or(|change| change == "5"));
    assert_eq!(first.resign().await.unwrap(), Release::StillHeld(1));
    assert_eq!(value(&leader(&client).await.unwrap()), "last");
    second.proclaim("end").await.unwrap();
    shows(&mut observer, "end").await;
    assert_eq!(second.resign().await.unwrap(), Release::Released);
}

/// The observer's connection leads to a server without the lock, as after a failover that loses it, and then back. It stayed
/// at "nobody leads" for the rest of the term.
#[test]
fn an_observer_that_was_led_astray_comes_back() {
    let servers = [Server::start(Generation::Redis70), Server::start(Generation::Redis70)];
    let [Some(server), Some(other)] = servers else { return };
    let proxy = Proxy::start(server.addr());
    runtime().block_on(async {
        let config = Config::from_url(&server.url()).unwrap();
        let config = config.watchdog_lease(Duration::from_secs(3));
        let leads = Client::with_config(config).await.unwrap();
        let sees = Client::connect(&proxy.url()).await.unwrap();
        let term = leads.election("scheduler").campaign("me").await.unwrap();
        let mut observer = sees.election("scheduler").observe().await.unwrap();
        let mut changed = async || loop {
            // While it connects anew, it may be told that the store is not there.
            if let Ok(seen) = tokio::time::timeout(4 * SOON, observer.changed()).await.unwrap() {
                return seen;
            }
        };
        let shown = changed().await;
        assert_eq!(shown.as_ref().map(|it| it.term), Some(term.token()));
        proxy.move_to(other.addr());
        proxy.cut_all();
        assert_eq!(changed().await, None);
        proxy.move_to(server.addr());
        proxy.cut_all();
        assert_eq!(changed().await, shown);
        assert_eq!(term.resign().await.unwrap(), Release::Released);
        assert_eq!(changed().await, None);
    });
}

/// An observer looked once for each message, and anybody may publish: 139 000 messages a second made it ask the server 7 800
/// times a second.
#[test]
fn a_flood_of_messages_makes_few_looks() {
    run(At::Server(Generation::Redis70), async |store: Store| {
        let (client, mut raw) = (store.client().await, store.raw().expect("a single server"));
        let term = client.election("scheduler").campaign("me").await.unwrap();
        let mut observer = client.election("scheduler").observe().await.unwrap();
        assert!(observer.changed().await.unwrap().is_some());
        let observes = tokio::spawn(async move { observer.changed().await.unwrap() });
        let looks = |raw: &mut Raw| {
            let stats = raw.call(&["INFO", "commandstats"]);
            let line = stats.text().lines().find(|it| it.starts_with("cmdstat_evalsha:"));
            line.and_then(|it| it.split(['=', ',']).nth(1)?.parse::<u128>().ok()).unwrap_or(0)
        };
        let (before, began) = (looks(&mut raw), Instant::now());
        let message = format!("l1 {} 1 {}", term.token(), term.owner());
        for _ in 0..200 {
            for _ in 0..20 {
                raw.call(&["PUBLISH", "fairlock_leader:{scheduler}", &message]);
            }
            // The messages before this are read meanwhile.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (after, most) = (looks(&mut raw), began.elapsed().as_millis() / 20);
        // Besides, the client may renew and announce.
        assert!(after - before <= most + 5, "{} looks, not {most}", after - before);
        assert!(after - before >= 3, "{} looks: were the messages heard?", after - before);
        term.proclaim("still heard").await.unwrap();
        let seen = soon("the change", observes).await.unwrap().expect("it leads");
        assert_eq!(value(&seen), "still heard");
        assert_eq!(term.resign().await.unwrap(), Release::Released);
    });
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
