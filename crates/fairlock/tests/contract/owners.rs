//! Explicit owners: the owner that holds a lock may enter it again, and nobody else may.

use std::time::{Duration, Instant};

use super::super::api::{Client, Lock};
use super::super::support::{
    Store, granted, is_free, no_beats, poll_once, queue_is, soon, wait_behind,
};
use fairlock::{ErrorKind, GuardState, Kind, Release, Share};

const KINDS: [Kind; 3] = [Kind::Fair, Kind::Plain, Kind::Simple];

fn of_kind(client: &Client, kind: Kind) -> Lock {
    match kind {
        Kind::Plain => client.plain_lock("plain"),
        Kind::Simple => client.simple_lock("simple"),
        _ => client.fair_lock("fair"),
    }
}

fn each_kind(client: &Client) -> [Lock; 3] {
    KINDS.map(|kind| of_kind(client, kind))
}

/// The store knows the hold count, except that of a simple lock.
async fn count_is(lock: &Lock, count: u32) {
    let known = if lock.kind() == Kind::Simple { 1 } else { count };
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, known);
}

pub(super) async fn reentry(store: Store) {
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    assert_eq!(owner.to_string(), format!("{}:1", client.id()));
    for lock in each_kind(&client) {
        let own = lock.clone().owned_by(&owner);
        let first = own.lock().await.unwrap();
        assert_eq!(first.owner(), owner.id());
        let second = own.try_lock().await.unwrap().unwrap();
        let third = own.try_lock_for(Duration::from_secs(5)).await.unwrap().unwrap();
        let fourth = first.reenter().await.unwrap();
        assert_eq!((second.token(), third.token()), (first.token(), first.token()));
        assert_eq!(fourth.hold_count(), 4);
        count_is(&lock, 4).await;
        // Neither a request without an owner nor another owner gets in.
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.clone().owned_by(&client.owner()).try_lock().await.unwrap().is_none());
        assert_eq!(first.release().await.unwrap(), Release::StillHeld(3));
        assert_eq!(fourth.release().await.unwrap(), Release::StillHeld(2));
        assert_eq!(third.release().await.unwrap(), Release::StillHeld(1));
        second.ensure_valid().unwrap();
        let token = second.token();
        assert_eq!(second.release().await.unwrap(), Release::Released);
        assert!(!lock.is_locked().await.unwrap());
        // The hold is over: the next one gets a new token.
        let next = own.lock().await.unwrap();
        assert!(next.token() > token);
        drop(next);
        is_free(&lock).await;
    }
}

/// Inner calls may be far away from the outer guard; others wait until all guards are gone.
pub(super) async fn others_wait_for_all_of_them(store: Store) {
    let client = store.client_with(no_beats).await;
    let (owner, other) = (client.owner(), client.owner());
    let lock = client.fair_lock("job");
    let outer = lock.clone().owned_by(&owner).lock().await.unwrap();
    let inner = {
        let lock = lock.clone().owned_by(&owner);
        tokio::spawn(async move { lock.lock().await.unwrap() }).await.unwrap()
    };
    let waiter = {
        let lock = lock.clone().owned_by(&other);
        tokio::spawn(async move { lock.lock().await })
    };
    queue_is(&lock, 1).await;
    assert_eq!(lock.inspect().await.unwrap().queue[0].owner, *other.id());
    // Re-entry also works while somebody waits.
    let third = lock.clone().owned_by(&owner).lock().await.unwrap();
    drop(outer);
    drop(third);
    assert_eq!(lock.inspect().await.unwrap().queue_len, 1);
    let token = inner.token();
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    let next = granted(waiter).await;
    assert!(next.token() > token);
    assert_eq!(next.owner(), other.id());
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

/// Ten concurrent requests of one owner are one waiter, and end as ten guards of one hold.
pub(super) async fn requests_at_once_are_one_waiter(store: Store) {
    const REQUESTS: u32 = 10;
    for kind in KINDS {
        let client = store.client().await;
        let owner = client.owner();
        let lock = of_kind(&client, kind);
        let holder = lock.lock().await.unwrap();
        let requests: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let lock = lock.clone().owned_by(&owner);
                tokio::spawn(async move { lock.lock().await.unwrap() })
            })
            .collect();
        if kind == Kind::Fair {
            queue_is(&lock, 1).await;
        }
        assert!(lock.clone().owned_by(&owner).try_lock().await.unwrap().is_none());
        let _ = holder.release().await.unwrap();
        let mut guards = Vec::new();
        for request in requests {
            guards.push(soon("its turn", request).await.unwrap());
        }
        count_is(&lock, REQUESTS).await;
        assert_eq!(lock.inspect().await.unwrap().queue_len, 0);
        assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
        for (left, guard) in (0..REQUESTS).rev().zip(guards) {
            let outcome = guard.release().await.unwrap();
            let expected = if left == 0 { Release::Released } else { Release::StillHeld(left) };
            assert_eq!(outcome, expected);
        }
    }
}

/// The second request waits behind the first, with its own time limit, and can be dropped any time.
pub(super) async fn a_request_behind_another_has_its_own_end(store: Store) {
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    let lock = client.fair_lock("job");
    let own = lock.clone().owned_by(&owner);
    let holder = lock.lock().await.unwrap();
    let first = {
        let own = own.clone();
        tokio::spawn(async move { own.lock().await })
    };
    queue_is(&lock, 1).await;
    let began = Instant::now();
    let wait = Duration::from_millis(120);
    assert!(soon("its end", own.try_lock_for(wait)).await.unwrap().is_none());
    assert!(began.elapsed() >= wait);
    let mut dropped = Box::pin(own.lock());
    assert!(poll_once(&mut dropped).await.is_none());
    drop(dropped);
    let second = {
        let own = own.clone();
        tokio::spawn(async move { own.lock().await })
    };
    queue_is(&lock, 1).await;
    // When the request that stands in the queue goes, the one behind it asks for itself.
    first.abort();
    assert!(soon("its end", first).await.unwrap_err().is_cancelled());
    let _ = holder.release().await.unwrap();
    let guard = granted(second).await;
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 1);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    is_free(&lock).await;
}

/// Requests come and go as fast as they can. Whatever happens to them, the lock is free in the end,
/// and meanwhile no request gets a hold that another request is about to give up.
pub(super) async fn nothing_that_is_given_up_is_taken_over(store: Store) {
    const ROUNDS: u32 = 60;
    for kind in KINDS {
        let client = store.client().await;
        let lock = of_kind(&client, kind);
        let owner = client.owner();
        let own = lock.clone().owned_by(&owner);
        for round in 0..ROUNDS {
            let mut dropped = Box::pin(own.lock());
            for _ in 0..round % 4 {
                if poll_once(&mut dropped).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(dropped);
            let guard = soon("a free lock", own.lock()).await.unwrap();
            for _ in 0..3 {
                let holder = lock.inspect().await.unwrap().holder.unwrap();
                assert_eq!((&holder.owner, holder.count), (owner.id(), 1), "round {round}");
            }
            assert_eq!(guard.state(), GuardState::Held);
            assert_eq!(guard.release().await.unwrap(), Release::Released, "round {round}");
        }
        is_free(&lock).await;
    }
}

/// Two threads each counted one guard down, and sent their counts in the opposite order: the
/// release that was not the last met a lock that was already free, and reported it as lost. Found
/// by the cancellation driver, with a re-entry that was dropped while the outer guard was released.
pub(super) async fn a_dropped_reentry_beside_a_release_loses_nothing(store: Store) {
    const ROUNDS: u32 = 400;
    let client = store.client_with(no_beats).await;
    for lock in each_kind(&client) {
        let own = lock.clone().owned_by(&client.owner());
        for round in 0..ROUNDS {
            let guard = own.lock().await.unwrap();
            let mut dropped = Box::pin(own.lock());
            for _ in 0..round % 8 {
                if poll_once(&mut dropped).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(dropped);
            let outcome = guard.release().await.unwrap();
            let fine = [Release::Released, Release::StillHeld(1)].contains(&outcome);
            assert!(fine, "round {round}: {outcome:?}");
            is_free(&lock).await;
        }
    }
}

/// The server has a hold of this owner that the client does not know: that of a request which the
/// client gave up and could not take back yet. The next request waits for its end, and does not
/// take it over.
pub(super) async fn an_unknown_hold_of_ones_own_is_waited_for(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client().await;
    let ttl = Duration::from_millis(400);
    for lock in each_kind(&client) {
        let owner = client.owner();
        let own = lock.clone().owned_by(&owner);
        let key = format!("{:?}", lock.kind()).to_lowercase();
        let left = |raw: &mut fairlock_testkit::raw::Raw, ttl: Duration| {
            if lock.kind() == Kind::Simple {
                let request = "0".repeat(32);
                raw.call(&["SET", &key, &format!("{owner}:{request}:1")]);
            } else {
                raw.call(&["HSET", &key, &owner.to_string(), "1"]);
            }
            raw.call(&["PEXPIRE", &key, &ttl.as_millis().to_string()]);
        };
        left(&mut raw, Duration::from_secs(60));
        assert!(own.try_lock().await.unwrap().is_none());
        assert!(own.try_lock_for(ttl / 4).await.unwrap().is_none());
        let began = Instant::now();
        left(&mut raw, ttl);
        let guard = soon("the end of the lease", own.lock()).await.unwrap();
        assert!(began.elapsed() >= ttl, "{:?}", began.elapsed());
        assert_eq!(lock.inspect().await.unwrap().token, Some(guard.token()));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

pub(super) async fn a_lost_hold_is_not_entered(store: Store) {
    let client = store.client_with(no_beats).await;
    let operator = store.client_with(no_beats).await;
    let owner = client.owner();
    for lock in each_kind(&client) {
        let own = lock.clone().owned_by(&owner);
        // The loss is known.
        let lost = own.clone().lease(Duration::from_secs(1)).lock().await.unwrap();
        soon("the end of the lease", lost.lost()).await;
        let next = soon("a free lock", own.lock()).await.unwrap();
        assert!(next.token() > lost.token());
        assert_eq!(lost.release().await.unwrap(), Release::Lost);
        if lock.kind() == Kind::Simple {
            // Re-entries of a simple lock do not ask the store: the next renewal reveals the loss.
            continue;
        }
        // Taken away; the re-entry discovers it.
        assert!(of_kind(&operator, lock.kind()).force_unlock().await.unwrap());
        let after = soon("a free lock", own.lock()).await.unwrap();
        assert!(after.token() > next.token());
        assert_eq!(next.state(), GuardState::Lost);
        assert_eq!(next.release().await.unwrap(), Release::Lost);
        after.ensure_valid().unwrap();
        assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 1);
        assert_eq!(after.release().await.unwrap(), Release::Released);
    }
}

/// D45: while another reader goes on, an owner that reads again has the token of its former hold. The end of the former
/// guard ended the new hold, and a writer came in beside the new guard.
pub(super) async fn a_lost_guard_does_not_concern_the_owners_next_hold(store: Store) {
    const ENDS: [&str; 3] = ["dropped", "released", "entered"];
    let client = store.client_with(no_beats).await;
    let (lock, pool) = (client.rw_lock("catalogue"), client.semaphore("pool", 2));
    for share in [Share::Read, Share::Whole, Share::Permits { n: 2, limit: 2 }] {
        let owner = client.owner();
        let (own, own_pool) = (lock.clone().owned_by(&owner), pool.clone().owned_by(&owner));
        let hold = async |lease| match share {
            Share::Read => own.clone().lease(lease).read().await.unwrap().into_guard(),
            Share::Whole => own.clone().lease(lease).write().await.unwrap().into_guard(),
            _ => own_pool.clone().lease(lease).acquire_many(2).await.unwrap().into_guard(),
        };
        let others_may = async || match share {
            Share::Permits { .. } => pool.try_acquire().await.unwrap().map(|it| it.into_guard()),
            _ => lock.try_write().await.unwrap().map(|it| it.into_guard()),
        };
        for end in ENDS {
            let beside = match share {
                Share::Read => Some(lock.read().await.unwrap()),
                _ => None,
            };
            let former = hold(Duration::from_millis(500)).await;
            soon("the end of the lease", former.lost()).await;
            let present = soon("the next hold", hold(Duration::from_secs(60))).await;
            assert_eq!(present.token() == former.token(), share == Share::Read, "{share:?}");
            match end {
                "dropped" => drop(former),
                "released" => assert_eq!(former.release().await.unwrap(), Release::Lost),
                _ => drop(former.reenter().await.unwrap_err()),
            }
            if let Some(beside) = beside {
                assert_eq!(beside.release().await.unwrap(), Release::Released);
            }
            assert!(others_may().await.is_none(), "{share:?}, {end}: beside a guard");
            assert_eq!(present.state(), GuardState::Held);
            assert_eq!(present.hold_count(), 1);
            assert_eq!(present.release().await.unwrap(), Release::Released, "{share:?}, {end}");
            let next = others_may().await.unwrap_or_else(|| panic!("{share:?}, {end}: not free"));
            assert_eq!(next.release().await.unwrap(), Release::Released);
        }
    }
}

/// The second entry is refused at once: nothing is sent, and the hold counts one. What is over, or lost, is no hold.
pub(super) async fn a_second_entry_can_be_refused(store: Store) {
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    for lock in each_kind(&client) {
        let own = lock.clone().owned_by(&owner).non_reentrant();
        let guard = own.lock().await.unwrap();
        let calls = store.raw().map(|mut raw| raw.script_calls());
        for error in [
            own.lock().await.unwrap_err(),
            own.try_lock().await.unwrap_err(),
            own.try_lock_for(Duration::from_secs(60)).await.unwrap_err(),
            own.with(async |_| ()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
            assert_eq!(error.lock(), Some(guard.name()));
            assert_eq!(error.owner(), Some(owner.id()));
        }
        assert_eq!(store.raw().map(|mut raw| raw.script_calls()), calls, "nothing was sent");
        assert_eq!(guard.hold_count(), 1);
        count_is(&lock, 1).await;
        // The handle decides, not the hold; and others wait as always.
        let inner = lock.clone().owned_by(&owner).lock().await.unwrap();
        assert!(lock.clone().non_reentrant().try_lock().await.unwrap().is_none());
        assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let short = own.clone().lease(Duration::from_secs(1));
        let next = soon("the lock", short.lock()).await.unwrap();
        soon("the loss", next.lost()).await;
        let new = soon("a new hold", own.lock()).await.unwrap();
        assert!(new.token() > next.token());
        // Awaited: what the background still sends would be counted in the next round.
        assert_eq!(next.release().await.unwrap(), Release::Lost);
        assert_eq!(new.release().await.unwrap(), Release::Released);
    }
    let rw = client.rw_lock("catalogue").owned_by(&owner).non_reentrant();
    let reading = rw.read().await.unwrap();
    for error in [
        rw.read().await.unwrap_err(),
        rw.try_read().await.unwrap_err(),
        rw.write().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    }
    assert_eq!(reading.hold_count(), 1);
    drop(reading);
}

/// While the first request waits for the lock nothing is held: the second waits for its outcome, and is refused then. If
/// the first gives up, the second asks.
pub(super) async fn a_second_request_is_refused_when_the_first_is_granted(store: Store) {
    let client = store.client().await;
    let owner = client.owner();
    for lock in each_kind(&client) {
        let own = lock.clone().owned_by(&owner).non_reentrant();
        let holder = lock.lock().await.unwrap();
        let asks = || {
            let own = own.clone();
            tokio::spawn(async move { own.lock().await })
        };
        let both = [asks(), asks()];
        // A try does not wait for the other request.
        assert!(own.try_lock().await.unwrap().is_none());
        let _ = holder.release().await.unwrap();
        let mut guards = Vec::new();
        let mut refused = 0;
        for request in both {
            match soon("its outcome", request).await.unwrap() {
                Ok(guard) => guards.push(guard),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!((guards.len(), refused), (1, 1));
        drop(guards);
        is_free(&lock).await;
    }
}

/// In Java the lease of a re-entry replaces the first one; here the hold keeps its lease.
pub(super) async fn a_hold_keeps_its_lease(store: Store) {
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    let own = client.fair_lock("job").owned_by(&owner);
    let lease = Duration::from_secs(50);
    let outer = own.clone().lease(lease).lock().await.unwrap();
    let inner = own.clone().lease(Duration::from_secs(500)).lock().await.unwrap();
    let unlimited = own.lock().await.unwrap();
    for guard in [&outer, &inner, &unlimited] {
        assert_eq!(guard.lease(), lease);
        assert!(guard.remaining() <= lease);
    }
    assert!(own.inspect().await.unwrap().ttl.unwrap() <= lease);
}

pub(super) async fn errors_name_lock_owner_and_holder(store: Store) {
    let client = store.client_with(no_beats).await;
    let operator = store.client_with(no_beats).await;
    let stranger = Client::connect("memory:").await.unwrap().owner();
    let lock = client.fair_lock("job").owned_by(&stranger);
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock_for(Duration::from_secs(1)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert_eq!(error.owner(), Some(stranger.id()));
        let text = error.to_string();
        assert!(text.contains("job") && text.contains(&stranger.to_string()), "{text}");
    }
    assert!(!lock.is_locked().await.unwrap());

    // Somebody else holds the lock by now: the error names the holder.
    let owner = client.owner();
    let lock = client.fair_lock("job").owned_by(&owner);
    let guard = lock.lock().await.unwrap();
    // A waiter, which gets the lock as soon as it is taken away.
    let waits = wait_behind(&operator.fair_lock("job"), 1).await;
    assert!(operator.fair_lock("job").force_unlock().await.unwrap());
    let next = granted(waits).await;
    let error = guard.reenter().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.lock().unwrap().as_bytes(), b"job");
    assert_eq!((error.owner(), error.holder()), (Some(owner.id()), Some(next.owner())));
    let text = error.to_string();
    for part in ["job", &owner.to_string(), &next.owner().to_string()] {
        assert!(text.contains(part), "{text}");
    }

    // One name, two kinds.
    let fair = client.fair_lock("mixed").owned_by(&owner).lock().await.unwrap();
    let error = client.plain_lock("mixed").owned_by(&owner).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    fair.ensure_valid().unwrap();
    assert_eq!(client.fair_lock("mixed").inspect().await.unwrap().holder.unwrap().count, 1);
}
