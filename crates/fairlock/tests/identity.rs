//! F89: ids cannot be guessed, do not repeat, and cannot be forged into a hold.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::{At, SOON, run, runtime, soon, until, wait_behind};
use fairlock::{Client, OwnerId, Release};
use fairlock_testkit::server::Generation;

/// Each client gets a new id from the operating system: a restarted program never gets its former
/// id, and among a thousand clients none is shared.
#[test]
fn f89_no_client_has_the_id_of_another_or_of_its_former_life() {
    runtime().block_on(async {
        let (mut clients, mut owners) = (HashSet::new(), HashSet::new());
        for _ in 0..1_000 {
            let client = Client::connect("memory:").await.unwrap();
            let id = client.id().to_string();
            assert_eq!(id.as_bytes()[14], b'8', "version 8: {id}");
            assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "variant: {id}");
            assert!(clients.insert(id));
            // Numbers begin at 1 for every client; only the whole owner id is unique.
            let guard = client.fair_lock("job").lock().await.unwrap();
            assert!(guard.owner().is_ours());
            assert!(owners.insert(guard.owner().clone()));
        }
    });
}

/// The owners of a client are numbered, and no number is given twice, whoever asks.
#[test]
fn f89_owners_of_one_client_are_numbered_without_gaps_or_repeats() {
    const EACH: usize = 25_000;
    runtime().block_on(async {
        let client = Client::connect("memory:").await.unwrap();
        let ask = |thread: usize| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut owners = Vec::with_capacity(EACH);
                for n in 0..EACH {
                    let lock = client.fair_lock(format!("{thread}:{n}"));
                    owners.push(lock.lock().await.unwrap().owner().clone());
                }
                owners
            })
        };
        let mut all = HashSet::new();
        for task in [ask(0), ask(1), ask(2), ask(3)] {
            all.extend(task.await.unwrap());
        }
        assert_eq!(all.len(), 4 * EACH);
    });
}

/// Someone with write access to the keys forges our ids: a waiter as the holder, and waiters that
/// do not exist, with records. Nobody gets a guard from that.
#[test]
fn f89_forged_owner_ids_in_the_keys_give_no_hold() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store
            .client_with(|config| config.heartbeat(Duration::from_millis(100)).watchdog_lease(SOON))
            .await;
        let mut raw = store.raw().unwrap();
        let request = "0123456789abcdef0123456789abcdef";
        let owner = |number: u64| format!("{}:{number}", client.id());
        let number_of = |owner: &OwnerId| -> u64 {
            owner.to_string().rsplit_once(':').unwrap().1.parse().unwrap()
        };
        let lock = client.fair_lock("job");

        // The key names an explicit owner as the holder, before the owner has asked for the lock.
        let owned = client.owner();
        raw.call(&["HSET", "job", &owned.id().to_string(), "1"]);
        raw.call(&["PEXPIRE", "job", "60000"]);
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let lock = lock.owned_by(&owned);
            let waited = lock.try_lock_for(Duration::from_millis(300));
            assert!(!matches!(soon("an answer", waited).await, Ok(Some(_))));
            assert!(!matches!(soon("an answer", lock.try_lock()).await, Ok(Some(_))));
        }
        assert_eq!(raw.call(&["HVALS", "job"]).array()[0].text(), "1", "nothing was added to it");
        raw.call(&["DEL", "job"]);

        // The key names a waiter of this client as the holder; its heartbeats see that.
        let guard = lock.lock().await.unwrap();
        let waiter = wait_behind(&lock, 1).await;
        let waiting = lock.inspect().await.unwrap().queue[0].owner.to_string();
        raw.call(&["DEL", "job"]);
        raw.call(&["HSET", "job", &waiting, "1"]);
        raw.call(&["PEXPIRE", "job", "60000"]);
        let before = raw.script_calls();
        until("five heartbeats see the forgery", async || raw.script_calls() >= before + 5).await;
        assert!(!waiter.is_finished(), "a guard out of nothing");
        raw.call(&["PEXPIRE", "job", "1"]);
        drop(guard);
        // When the forged hold is over, the waiter gets a real one, with a token.
        let guard = soon("its turn", waiter).await.unwrap().unwrap();
        let status = lock.inspect().await.unwrap();
        assert_eq!(
            (&status.holder.unwrap().owner, status.token),
            (guard.owner(), Some(guard.token()))
        );

        // Queue entries that nobody made: one with this client's id, one of a client that does not
        // exist, both with a record that names a request.
        let last = number_of(guard.owner());
        let strangers = [owner(last + 50), "01234567-89ab-8def-8123-456789abcdef:1".to_owned()];
        for (place, stranger) in strangers.iter().enumerate() {
            raw.call(&["RPUSH", "redisson_lock_queue:{job}", stranger]);
            raw.call(&["ZADD", "redisson_lock_timeout:{job}", "99999999999999", stranger]);
            raw.call(&["ZADD", "fairlock_order:{job}", &(place + 1).to_string(), stranger]);
            raw.call(&["HSET", "fairlock_state:{job}", stranger, &format!("{request} 30000 0")]);
        }
        let next = lock.clone();
        let next = tokio::spawn(async move { next.lock().await });
        let _ = guard.release().await.unwrap();
        // Each forged entry costs the time of an unclaimed grant; then the real waiter gets the
        // lock.
        let guard = soon("past the ghosts", next).await.unwrap().unwrap();
        guard.ensure_valid().unwrap();
        let holder = lock.inspect().await.unwrap().holder.unwrap();
        assert_eq!(&holder.owner, guard.owner());
        let _ = guard.release().await.unwrap();
    });
}

/// What cannot be prevented if someone can write the keys: a future owner that was entered as the
/// holder holds the lock when it asks for it, as if a copy of its request had been faster. (A real
/// copy looks just like that.) It is then the only holder, for the forged TTL.
#[test]
fn f89_an_owner_that_is_forged_before_it_exists_excludes_all_others() {
    run(At::Server(Generation::Redis70), async |store| {
        let (client, other) = (store.client().await, store.client().await);
        let mut raw = store.raw().unwrap();
        for (name, lock) in
            [("fair", client.fair_lock("fair")), ("plain", client.plain_lock("plain"))]
        {
            let guard = lock.lock().await.unwrap();
            let owner = guard.owner().to_string();
            let (id, number) = owner.rsplit_once(':').unwrap();
            let _ = guard.release().await.unwrap();
            let forged = format!("{id}:{}", number.parse::<u64>().unwrap() + 1);
            raw.call(&["HSET", name, &forged, "1"]);
            raw.call(&["PEXPIRE", name, "60000"]);
            let guard = soon("an answer", lock.lock()).await.unwrap();
            assert_eq!(guard.owner().to_string(), forged);
            assert_eq!(raw.call(&["HVALS", name]).array()[0].text(), "1");
            for other in [other.fair_lock(name), other.plain_lock(name)] {
                assert!(other.try_lock().await.unwrap().is_none());
            }
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert_eq!(raw.call(&["EXISTS", name]).int(), 0);
        }
    });
}
