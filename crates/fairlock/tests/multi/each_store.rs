//! What several locks at once do on every store. The names are in different slots, except where they have a tag.

use crate::support::{Store, is_free, queue_is, soon, until};
use fairlock::{Client, Config, ErrorKind, GuardState, Member, MultiGuard, Release};
use std::time::Duration;

const NOT_NOW: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);
const FOUR: [&str; 4] = ["d", "b", "a", "c"];
const TAGGED: [&str; 4] = ["{t}d", "{t}b", "{t}a", "{t}c"];

async fn all_free(client: &Client, names: &[&str]) {
    for name in names {
        is_free(&client.fair_lock(*name)).await;
    }
}

pub(super) async fn free_ones_are_taken_and_given_back(store: Store) {
    let client = store.client().await;
    for names in [FOUR, TAGGED] {
        let lock = client.multi_lock(names).unwrap();
        assert!(lock.names().map(|name| name.to_string()).eq(names));
        let guard = soon("four free locks", lock.lock()).await.unwrap();
        assert_eq!(guard.state(), GuardState::Held);
        guard.ensure_valid().unwrap();
        assert!(guard.guards().map(|guard| guard.name().to_string()).eq(names));
        for name in names {
            let holder = client.fair_lock(name).holder().await.unwrap().unwrap();
            let of =
                guard.guards().find(|guard| guard.name().as_bytes() == name.as_bytes()).unwrap();
            assert_eq!(&holder.owner, of.owner());
            assert_eq!(guard.token(name), Some(of.token()));
        }
        assert_eq!(guard.token("e"), None);
        let tokens: Vec<_> = guard.guards().map(fairlock::Guard::token).collect();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        all_free(&client, &names).await;
        let again = lock.try_lock().await.unwrap().unwrap();
        assert!(again.guards().zip(&tokens).all(|(guard, before)| guard.token() > *before));
        drop(again);
        all_free(&client, &names).await;
    }
}

pub(super) async fn all_or_none(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    for names in [FOUR, TAGGED] {
        for busy in names {
            let held = other.fair_lock(busy).lock().await.unwrap();
            let lock = client.multi_lock(names).unwrap();
            assert!(soon("a try", lock.try_lock()).await.unwrap().is_none());
            let free: Vec<_> = names.into_iter().filter(|name| *name != busy).collect();
            for name in &free {
                // It has been given back when the try returns.
                assert!(!client.fair_lock(*name).is_locked().await.unwrap(), "{name}");
            }
            let _ = held.release().await.unwrap();
            let guard = lock.try_lock().await.unwrap().unwrap();
            let _ = guard.release().await.unwrap();
        }
    }
}

/// An attempt that failed took those that were free, one after the other, until it met the one that was not. Others who
/// tried one of these alone were refused, though nobody ever held them, and each attempt raised their tokens.
pub(super) async fn a_try_that_fails_takes_none(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    for names in [FOUR, TAGGED] {
        for busy in names {
            let held = other.fair_lock(busy).lock().await.unwrap();
            let tokens = async || {
                let mut tokens = Vec::new();
                for name in names {
                    tokens.push(other.fair_lock(name).inspect_first(0).await.unwrap().token);
                }
                tokens
            };
            let before = tokens().await;
            let lock = client.multi_lock(names).unwrap();
            let leased = client.multi_lock(names).unwrap().lease(Duration::from_secs(9));
            for _ in 0..3 {
                assert!(soon("a try", lock.try_lock()).await.unwrap().is_none());
                assert!(soon("a try", leased.try_lock()).await.unwrap().is_none());
            }
            assert_eq!(tokens().await, before, "{busy}");
            let _ = held.release().await.unwrap();
        }
        // With the others in the order in which they were named, whichever was asked for first.
        let guard = soon("four free ones", client.multi_lock(names).unwrap().try_lock()).await;
        let guard = guard.unwrap().unwrap();
        assert!(guard.guards().map(|guard| guard.name().to_string()).eq(names));
        let _ = guard.release().await.unwrap();
    }
}

/// Two that hold one name in turn, beside attempts at both of theirs and a third: the third is refused to nobody.
pub(super) async fn attempts_beside_others_leave_the_free_one_alone(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let always = other.fair_lock("{t}c").lock().await.unwrap();
    let in_turn = {
        let other = other.clone();
        tokio::spawn(async move {
            loop {
                drop(other.fair_lock("{t}b").lock().await.unwrap());
                tokio::task::yield_now().await;
            }
        })
    };
    let tries = tokio::spawn(async move {
        let lock = client.multi_lock(["{t}a", "{t}b", "{t}c"]).unwrap();
        for _ in 0..100 {
            assert!(lock.try_lock().await.unwrap().is_none());
            tokio::task::yield_now().await;
        }
    });
    while !tries.is_finished() {
        let guard = other.fair_lock("{t}a").try_lock().await.unwrap().expect("nobody holds it");
        let _ = guard.release().await.unwrap();
        tokio::task::yield_now().await;
    }
    soon("a hundred tries", tries).await.unwrap();
    in_turn.abort();
    drop(always);
}

pub(super) async fn a_busy_one_is_waited_for(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    for names in [FOUR, TAGGED] {
        let held = other.fair_lock(names[0]).lock().await.unwrap();
        let lock = client.multi_lock(names).unwrap();
        let waits = tokio::spawn(async move { lock.lock().await });
        queue_is(&other.fair_lock(names[0]), 1).await;
        assert!(!waits.is_finished());
        let _ = held.release().await.unwrap();
        let guard = soon("all of them", waits).await.unwrap().unwrap();
        for name in names {
            assert!(other.fair_lock(name).try_lock().await.unwrap().is_none(), "{name}");
        }
        let _ = guard.release().await.unwrap();
    }
}

/// B34: two that name the same locks in opposite orders, again and again.
pub(super) async fn opposite_orders_do_not_meet(store: Store) {
    let mut tasks = Vec::new();
    for names in [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]] {
        let client = store.client().await;
        tasks.push(tokio::spawn(async move {
            let lock = client.multi_lock(names).unwrap();
            for _ in 0..25 {
                let guard = lock.lock().await.unwrap();
                tokio::task::yield_now().await;
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        }));
    }
    for task in tasks {
        soon("nobody waits for ever", task).await.unwrap();
    }
}

fn mixed(client: &Client) -> [Member; 4] {
    [
        client.rw_lock("{t}catalogue").to_read(),
        client.semaphore("{t}db", 3).many(2),
        client.fair_lock("{t}invoice").into(),
        client.rw_lock("{t}index").to_write(),
    ]
}

pub(super) async fn all_kinds_together(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.multi_lock(mixed(&client)).unwrap();
    let guard = soon("all kinds", lock.lock()).await.unwrap();
    assert!(other.rw_lock("{t}catalogue").try_write().await.unwrap().is_none());
    let reads = other.rw_lock("{t}catalogue").try_read().await.unwrap().unwrap();
    assert_eq!(Some(reads.token()), guard.token("{t}catalogue"), "one phase of readers");
    assert!(other.rw_lock("{t}index").try_read().await.unwrap().is_none());
    assert!(other.semaphore("{t}db", 3).try_acquire_many(2).await.unwrap().is_none());
    let one = other.semaphore("{t}db", 3).try_acquire().await.unwrap().unwrap();
    assert!(other.fair_lock("{t}invoice").try_lock().await.unwrap().is_none());
    let _ = guard.release().await.unwrap();
    // Beside a reader and a permit of others.
    let guard = soon("beside others", lock.try_lock()).await.unwrap().unwrap();
    let _ = guard.release().await.unwrap();
    let two = other.semaphore("{t}db", 3).try_acquire().await.unwrap().unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(!other.fair_lock("{t}invoice").is_locked().await.unwrap());
    drop((reads, one, two));
    let _ = soon("after them", lock.lock()).await.unwrap().release().await.unwrap();
}

pub(super) async fn the_lease_begins_with_the_last(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let lease = Duration::from_secs(3);
    for busy in [false, true] {
        let held = match busy {
            true => Some(other.fair_lock(FOUR[0]).lock().await.unwrap()),
            false => None,
        };
        let lock = client.multi_lock(FOUR).unwrap().lease(lease);
        let waits = tokio::spawn(async move { lock.lock().await });
        if let Some(held) = held {
            queue_is(&other.fair_lock(FOUR[0]), 1).await;
            let _ = held.release().await.unwrap();
        }
        let guard = soon("all of them", waits).await.unwrap().unwrap();
        for of in guard.guards() {
            assert_eq!(of.lease(), lease);
            let ttl = other.fair_lock(of.name().as_bytes()).remaining_ttl().await.unwrap().unwrap();
            assert!(ttl <= lease, "{}: {ttl:?}", of.name());
            assert!(of.remaining() <= lease);
        }
        soon("the end of the lease", guard.lost()).await;
        assert_eq!(guard.state(), GuardState::Lost);
        drop(guard);
        all_free(&other, &FOUR).await;
    }
}

/// Clients that notice a loss soon, also where no message tells of it: on a Cluster only waiters hear of their slots.
async fn soon_told(store: &Store) -> (Client, Client) {
    let tune = |config: Config| config.watchdog_lease(Duration::from_secs(9));
    (store.client_with(tune).await, store.client_with(tune).await)
}

async fn held(client: &Client, names: [&str; 4]) -> MultiGuard {
    soon("four free locks", client.multi_lock(names).unwrap().lock()).await.unwrap()
}

pub(super) async fn a_lost_one_loses_all(store: Store) {
    let (client, other) = soon_told(&store).await;
    let guard = held(&client, FOUR).await;
    assert!(other.fair_lock("c").force_unlock().await.unwrap());
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.state_changed(GuardState::Held).await, GuardState::Lost);
    assert!(guard.lost_reason().is_some());
    assert_eq!(guard.remaining(), Duration::ZERO);
    let error = guard.ensure_valid().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.lock().unwrap().as_bytes(), b"c");
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    all_free(&other, &FOUR).await;
}

/// B36: what was held while the others were waited for is taken away.
pub(super) async fn a_loss_before_the_last_begins_again(store: Store) {
    let (client, other) = soon_told(&store).await;
    // In this order: `b` is in slot 3300, `c` in 7365, `d` in 11298, `a` in 15495.
    let blocks = other.fair_lock("a").lock().await.unwrap();
    let lock = client.multi_lock(FOUR).unwrap();
    let waits = tokio::spawn(async move { lock.lock().await });
    queue_is(&other.fair_lock("a"), 1).await;
    let before = other.fair_lock("b").holder().await.unwrap().unwrap().owner;
    assert!(other.fair_lock("b").force_unlock().await.unwrap());
    until("it began again", async || {
        let now = other.fair_lock("b").holder().await.unwrap();
        now.is_some_and(|now| now.owner != before)
    })
    .await;
    queue_is(&other.fair_lock("a"), 1).await;
    assert!(!waits.is_finished());
    let _ = blocks.release().await.unwrap();
    let guard = soon("all of them", waits).await.unwrap().unwrap();
    guard.ensure_valid().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// `b` was lost while `a` was waited for, and nobody told its holder: an operator deleted it, or took it by force on a
/// Cluster, where only waiters are told. When `a` came, the guard was handed out beside the next holder of `b`.
pub(super) async fn what_was_lost_unnoticed_is_not_handed_out(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let blocks = other.fair_lock("a").lock().await.unwrap();
    let lock = client.multi_lock(["a", "b"]).unwrap();
    let waits = tokio::spawn(async move { lock.lock().await });
    queue_is(&other.fair_lock("a"), 1).await;
    match store.raw() {
        Some(mut raw) => assert_eq!(raw.call(&["DEL", "b"]).int(), 1),
        None => assert!(other.fair_lock("b").force_unlock().await.unwrap()),
    }
    // It comes too late where the loss was noticed at once.
    let works = other.fair_lock("b").try_lock().await.unwrap();
    let _ = blocks.release().await.unwrap();
    let mut last = None;
    if let Some(works) = works {
        queue_is(&other.fair_lock("b"), 1).await;
        assert!(!waits.is_finished());
        works.ensure_valid().unwrap();
        last = Some(works.token());
        let _ = works.release().await.unwrap();
    }
    let guard = soon("both of them", waits).await.unwrap().unwrap();
    assert!(guard.token("b") > last);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

pub(super) async fn the_wait_is_bounded_in_total(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let blocks = other.fair_lock("a").lock().await.unwrap();
    let lock = client.multi_lock(FOUR).unwrap();
    assert!(soon("a wait", lock.try_lock_for(NOT_NOW)).await.unwrap().is_none());
    for name in ["b", "c", "d"] {
        assert!(!other.fair_lock(name).is_locked().await.unwrap(), "{name}");
    }
    queue_is(&other.fair_lock("a"), 0).await;
    assert!(soon("no wait", lock.try_lock_for(Duration::ZERO)).await.unwrap().is_none());
    let _ = blocks.release().await.unwrap();
    let wait = Duration::from_secs(10);
    let guard = soon("all of them", lock.try_lock_for(wait)).await.unwrap().unwrap();
    let _ = guard.release().await.unwrap();
}

pub(super) async fn bad_input_is_refused(store: Store) {
    let (client, stranger) = (store.client().await, Client::connect("memory:").await.unwrap());
    let refused = |members: Vec<Member>| {
        let error = client.multi_lock(members).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        error.to_string()
    };
    let named = |names: &[&str]| names.iter().map(|name| Member::from(*name)).collect::<Vec<_>>();
    let none = refused(vec![]);
    assert!(none.contains("at least one"), "{none}");
    let many: Vec<_> = (0..33).map(|n| Member::from(format!("{{t}}{n}"))).collect();
    assert!(refused(many.clone()).contains("at most 32"));
    let twice = refused(named(&["a", "b", "a"]));
    assert!(twice.contains("twice") && twice.contains('a'), "{twice}");
    assert!(refused(named(&["x", "{x}"])).contains("queue"));
    let both = vec![client.rw_lock("a").to_read(), client.rw_lock("a").to_write()];
    assert!(refused(both).contains("twice"));
    assert!(refused(vec![client.plain_lock("a").into()]).contains("queue"));
    assert!(refused(vec![client.simple_lock("a").into()]).contains("queue"));
    refused(vec![client.semaphore("a", 3).many(4)]);
    refused(vec![client.semaphore("a", 3).many(0)]);
    refused(vec![client.fair_lock("a").lease(Duration::from_secs(1)).into()]);
    refused(vec![client.fair_lock("a").owned_by(&client.owner()).into()]);
    assert!(refused(vec![stranger.fair_lock("a").into()]).contains("another client"));
    refused(named(&["a", ""]));
    let short = client.multi_lock(FOUR).unwrap().lease(Duration::from_millis(1));
    assert_eq!(short.lock().await.unwrap_err().kind(), ErrorKind::Misuse);
    all_free(&client, &FOUR).await;
    let most = client.multi_lock(many.into_iter().take(32)).unwrap();
    let guard = soon("thirty-two", most.lock()).await.unwrap();
    assert_eq!(guard.guards().len(), 32);
    let _ = guard.release().await.unwrap();
}

/// What stands under one of the names is no lock of that kind, or the store cannot have the name: the error is
/// about that name, and the others are given back.
pub(super) async fn one_that_cannot_be_taken_refuses_all(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    other.latch("c").try_set(1).await.unwrap();
    let _pool = other.semaphore("{t}c", 3).acquire().await.unwrap();
    let mut all = vec![(FOUR, "c", ErrorKind::WrongType), (TAGGED, "{t}c", ErrorKind::WrongType)];
    if store.is_cluster() {
        // Redisson's rule puts its keys into several slots.
        all.push((["d", "b", "a", "c}"], "c}", ErrorKind::Misuse));
    }
    for (names, bad, kind) in all {
        let lock = client.multi_lock(names).unwrap();
        for call in [
            soon("an error", lock.lock()).await.map(drop),
            soon("an error", lock.try_lock()).await.map(drop),
            soon("an error", lock.try_lock_for(LONG)).await.map(drop),
        ] {
            let error = call.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.lock().unwrap().as_bytes(), bad.as_bytes(), "{error}");
        }
        for name in names.into_iter().filter(|name| *name != bad) {
            is_free(&other.fair_lock(name)).await;
            queue_is(&other.fair_lock(name), 0).await;
        }
    }
}

pub(super) async fn closures(store: Store) {
    let (client, other) = soon_told(&store).await;
    let lock = client.multi_lock(FOUR).unwrap();
    let done = lock
        .with(async |held| {
            held.ensure_valid().unwrap();
            assert_eq!((held.state(), held.held().len()), (GuardState::Held, 4));
            held.token("a").unwrap()
        })
        .await
        .unwrap();
    assert_eq!(done.release, Release::Released);
    let lost = lock.with(async |held| {
        assert!(held.token("a").unwrap() > done.value);
        assert!(other.fair_lock("c").force_unlock().await.unwrap());
        std::future::pending::<()>().await;
    });
    assert_eq!(soon("the loss", lost).await.unwrap_err().kind(), ErrorKind::Lost);
    all_free(&client, &FOUR).await;
}

pub(super) async fn a_dropped_wait_leaves_nothing(store: Store) {
    let (client, other) = (store.client().await, store.client().await);
    let blocks = other.fair_lock("a").lock().await.unwrap();
    let lock = client.multi_lock(FOUR).unwrap();
    let waits = tokio::spawn(async move { lock.lock().await });
    queue_is(&other.fair_lock("a"), 1).await;
    waits.abort();
    queue_is(&other.fair_lock("a"), 0).await;
    all_free(&other, &["b", "c", "d"]).await;
    drop(blocks);
}

pub(super) async fn one_alone(store: Store) {
    let client = store.client().await;
    let lock = client.multi_lock(["a"]).unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    let guards = guard.into_guards();
    assert_eq!(guards.len(), 1);
    drop(guards);
    let _ = soon("free again", lock.lock()).await.unwrap().release().await.unwrap();
}
