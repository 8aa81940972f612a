//! Any bytes are a name; a name that cannot work is refused before anything is sent.

use std::time::Duration;

use super::super::support::{Store, granted, no_beats, soon, until, wait_behind};
use fairlock::{Error, ErrorKind, LockName};

/// Names that can all be used beside each other.
fn odd_names(store: &Store) -> Vec<Vec<u8>> {
    let texts: [&[u8]; 28] = [
        b"\0",
        b"a\0b",
        b"\r\n",
        b"a\r\nDEL b\r\n",
        b"\xff",
        b"\xff\xfe\x80",
        b" ",
        b"  a  ",
        b"{b1}",
        b"b2{",
        b"b3}",
        b"}b4{",
        b"{b5}x{y}",
        b"x{{b6}}",
        b"{}b7",
        b"{",
        b"}",
        b"*",
        b"?[a-z]",
        b"\\",
        b"%s%n",
        b"\"'`$(x)",
        b"a:b:c",
        b"0",
        b"-1",
        b"1e400",
        "\u{1f512}\u{200d}\u{fe0f}".as_bytes(),
        b"redisson_lock__channel:{b8}",
    ];
    let mut names: Vec<_> = texts.iter().map(|text| text.to_vec()).collect();
    names.push(vec![b'x'; 4096]);
    names.push(vec![0xff; 4096]);
    // Redisson's rule puts the keys of these names into different slots.
    let apart: [&[u8]; 6] = [b"b2{", b"b3}", b"}b4{", b"{}b7", b"{", b"}"];
    names.retain(|name| !store.is_cluster() || !apart.contains(&&name[..]));
    names
}

pub(super) async fn odd_names_work(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let mut guards = Vec::new();
    for name in odd_names(&store) {
        let guard = soon("a free lock", client.fair_lock(&name).lock()).await.unwrap();
        assert_eq!(guard.name().as_bytes(), name);
        guards.push(guard);
    }
    for guard in &guards {
        let lock = other.fair_lock(guard.name().as_bytes());
        assert!(lock.try_lock().await.unwrap().is_none(), "{:?}", guard.name());
        let status = lock.inspect().await.unwrap();
        assert_eq!(status.holder.unwrap().owner, *guard.owner(), "{:?}", guard.name());
        assert_eq!(status.token, Some(guard.token()));
    }
    for guard in guards {
        let lock = other.plain_lock(guard.name().as_bytes());
        let _ = guard.release().await.unwrap();
        let guard = lock.try_lock().await.unwrap().expect("a free lock");
        let _ = guard.release().await.unwrap();
    }
}

pub(super) async fn odd_names_wait(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let mut waiting = Vec::new();
    for name in odd_names(&store) {
        let guard = client.fair_lock(&name).lock().await.unwrap();
        let waiter = wait_behind(&other.fair_lock(&name), 1).await;
        waiting.push((guard, waiter));
    }
    for (guard, waiter) in waiting {
        let name = guard.name().clone();
        let _ = guard.release().await.unwrap();
        let next = granted(waiter).await;
        assert_eq!(*next.name(), name);
        let _ = next.release().await.unwrap();
    }
}

/// Redisson derives the same queue for the locks `n` and `{n}`. A hand-over of one must never go to
/// a waiter of the other, which would work beside the holder of its own lock.
pub(super) async fn names_that_share_a_queue_do_not_share_grants(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for (name, twin) in [("n", "{n}"), ("{m}", "m")] {
        let guard = client.fair_lock(name).lock().await.unwrap();
        let waiter = wait_behind(&other.fair_lock(name), 1).await;
        for _ in 0..5 {
            let twin = client.fair_lock(twin);
            drop(twin.try_lock().await.unwrap());
            // The store may not answer in so short a time on a busy machine.
            let tried = twin.try_lock_for(Duration::from_millis(20)).await;
            assert!(tried.as_ref().err().is_none_or(|error| error.kind().is_retryable()));
            drop(tried);
            twin.force_unlock().await.unwrap();
        }
        let holder = client.fair_lock(name).inspect().await.unwrap().holder.unwrap();
        assert_eq!(holder.owner, *guard.owner());
        assert!(!waiter.is_finished(), "two guards of {name}");
        waiter.abort();
        drop(guard);
    }
}

pub(super) async fn bad_names_are_refused(store: Store) {
    let client = store.client().await;
    let long = vec![b'x'; 4097];
    let table: [(&[u8], &str); 8] = [
        (b"", "at least one byte"),
        (&long, "4097"),
        (b"redisson_lock_queue:{a}", "redisson_lock_queue:"),
        (b"redisson_lock_timeout:{a}", "redisson_lock_timeout:"),
        (b"redisson_lock_token:{a}", "redisson_lock_token:"),
        (b"redisson_unlock_latch:{a}:1", "redisson_unlock_latch:"),
        (b"fairlock_state:{a}", "fairlock_"),
        (b"fairlock_", "fairlock_"),
    ];
    let names = |name: &[u8]| {
        let name_of = |name: Result<&LockName, Error>| name.cloned();
        [
            name_of(client.fair_lock(name).name()),
            name_of(client.rw_lock(name).name()),
            name_of(client.semaphore(name, 1).name()),
            name_of(client.election(name).name()),
        ]
    };
    for name in names(b"job") {
        assert_eq!(name.unwrap().as_bytes(), b"job");
    }
    for (name, says) in table {
        for error in names(name).map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Misuse);
            assert!(error.to_string().contains(says), "{error}");
        }
        for lock in [client.fair_lock(name), client.plain_lock(name)] {
            for error in super::errors::of_every_call(&lock).await {
                assert_eq!(error.kind(), ErrorKind::Misuse);
                assert!(error.to_string().contains(says), "{error}");
            }
        }
    }
}

pub(super) async fn bad_leases_are_refused(store: Store) {
    let client = store.client().await;
    let year = Duration::from_secs(366 * 24 * 3_600);
    let leases = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(99),
        Duration::from_nanos(99_999_999),
        10 * year,
        Duration::MAX,
    ];
    for lease in leases {
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let lock = lock.lease(lease);
            let errors = [
                lock.lock().await.unwrap_err(),
                lock.try_lock().await.unwrap_err(),
                lock.try_lock_for(Duration::from_secs(1)).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Misuse);
                let text = error.to_string();
                assert!(text.contains("lease") && text.contains(&format!("{lease:?}")), "{text}");
                assert_eq!(error.lock().unwrap().as_bytes(), b"job");
            }
        }
    }
    let status = client.fair_lock("job").inspect().await.unwrap();
    assert!(status.holder.is_none() && status.token.is_none(), "nothing was sent");
}

pub(super) async fn the_shortest_and_the_longest_lease(store: Store) {
    let client = store.client().await;
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3_600);
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let shortest = lock.clone().lease(Duration::from_millis(100));
        // A busy machine may deliver the grant after so short a lease has ended.
        let guard = loop {
            match shortest.lock().await {
                Err(error) if error.kind() == ErrorKind::LeaseTooShort => {}
                guard => break guard.unwrap(),
            }
        };
        soon("its end", guard.lost()).await;
        let guard = soon("a free lock", lock.clone().lease(ten_years).lock()).await.unwrap();
        // If the grant came by message, the client asks for the whole lease a moment later.
        until("the whole lease", async || {
            let ttl = lock.inspect().await.unwrap().ttl.unwrap();
            assert!(ttl <= ten_years, "{ttl:?}");
            ttl > ten_years - Duration::from_secs(60)
        })
        .await;
        guard.ensure_valid().unwrap();
        let _ = guard.release().await.unwrap();
    }
}
