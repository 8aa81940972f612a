//! A thread as the owner of its locks.

use std::time::Duration;

use crate::support::{At, Store};
use fairlock::blocking::{Client, Interrupt, Lock};
use fairlock::{Config, ErrorKind, GuardState, Release};
use fairlock_testkit::server::{Generation, Server};

/// Memory, a file, and a server if it is installed.
pub(super) fn on_stores(test: impl Fn(&Client, Option<&Server>)) {
    let embedded = [
        At::Memory,
        #[cfg(feature = "sqlite")]
        At::Host,
    ];
    for at in embedded.into_iter().chain([At::Server(Generation::Redis70)]) {
        let Some(store) = Store::open(at) else { continue };
        let config = Config::from_url(&store.url()).unwrap().heartbeat(Duration::from_secs(60));
        let client = Client::with_config(config.watchdog_lease(Duration::from_secs(300))).unwrap();
        test(&client, store.server());
    }
}

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn locks(client: &Client) -> [Lock; 3] {
    [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")]
}

#[test]
fn a_thread_enters_its_own_locks_again() {
    on_stores(|client, _| {
        for lock in locks(client) {
            let outer = lock.lock().unwrap();
            let inner = lock.lock().unwrap();
            let tried = lock.clone().try_lock().unwrap().unwrap();
            let timed = lock.try_lock_for(Duration::from_secs(5)).unwrap().unwrap();
            assert_eq!(timed.hold_count(), 4);
            assert_eq!((inner.token(), inner.owner()), (outer.token(), outer.owner()));
            assert_eq!(tried.release().unwrap(), Release::StillHeld(3));
            drop(outer);
            // Other threads and owners are refused.
            assert!(elsewhere(|| lock.try_lock().unwrap().is_none()));
            assert!(elsewhere(|| {
                lock.try_lock_for(Duration::from_millis(10)).unwrap().is_none()
            }));
            assert!(lock.clone().owned_by(&client.owner()).try_lock().unwrap().is_none());
            drop(inner);
            let count = timed.hold_count();
            assert_eq!((count, timed.release().unwrap()), (1, Release::Released));
            assert!(!lock.is_locked().unwrap());
            // Each thread is a new owner, even if the system reuses its thread id.
            let owner = elsewhere(|| lock.lock().unwrap().owner().clone());
            let next = elsewhere(|| lock.lock().unwrap().owner().clone());
            assert_ne!(owner, next);
        }
    });
}

/// As Java's locks that are not reentrant: the thread's second entry is an error, and others wait.
#[test]
fn a_thread_can_be_refused_its_own_lock() {
    on_stores(|client, _| {
        for lock in locks(client) {
            let lock = lock.non_reentrant();
            let guard = lock.lock().unwrap();
            let errors = [lock.lock().unwrap_err(), lock.try_lock().unwrap_err()];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
                assert_eq!(error.owner(), Some(guard.owner()));
            }
            assert!(elsewhere(|| lock.try_lock().unwrap().is_none()));
            assert_eq!(guard.hold_count(), 1);
            assert_eq!(guard.release().unwrap(), Release::Released);
            drop(lock.lock().unwrap());
        }
        let rw = client.rw_lock("catalogue").non_reentrant();
        let writing = rw.write().unwrap();
        assert_eq!(rw.read().unwrap_err().kind(), ErrorKind::AlreadyHeld);
        drop(writing);
    });
}

/// A job that two threads work on.
#[test]
fn an_owner_of_ones_own_replaces_the_thread() {
    on_stores(|client, _| {
        let owner = client.owner();
        let lock = client.fair_lock("job").owned_by(&owner);
        let guard = lock.lock().unwrap();
        assert_eq!(guard.owner(), owner.id());
        let (token, count) = elsewhere(|| {
            let guard = lock.lock().unwrap();
            (guard.token(), guard.hold_count())
        });
        assert_eq!((token, count), (guard.token(), 2));
        // The thread itself is not the holder.
        assert!(client.fair_lock("job").try_lock().unwrap().is_none());
    });
}

#[test]
fn the_value_of_the_work_is_kept() {
    on_stores(|client, _| {
        let lock = client.fair_lock("job");
        let done = lock.with(|held| {
            let inner = lock.with(|inner| inner.token()).unwrap();
            assert_eq!((inner.value, inner.release), (held.token(), Release::StillHeld(1)));
            held.ensure_valid().map(|()| held)
        });
        let done = done.unwrap();
        assert_eq!(done.release, Release::Released);
        assert_eq!(done.value.unwrap().state(), GuardState::Lost, "the closure is over");
        assert!(!lock.is_locked().unwrap());
        // Even if the release finds the lock taken away, and the interrupt is set.
        let interrupt = Interrupt::new();
        let done = lock.clone().interruptible(&interrupt).with(|held| {
            interrupt.interrupt();
            assert!(lock.force_unlock().unwrap());
            held.token()
        });
        assert_eq!(done.unwrap().release, Release::Lost);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = lock.with(|_| panic!("as planned"));
        }));
        assert!(panicked.is_err());
        assert!(elsewhere(|| lock.try_lock_for(Duration::from_secs(10)).unwrap().is_some()));
    });
}

#[test]
fn the_rest_of_the_client() {
    on_stores(|client, _| {
        client.ping().unwrap();
        assert_eq!(client.connection(), fairlock::ConnectionState::Connected);
        let lock = client.fair_lock("job").lease(Duration::from_secs(50));
        let guard = lock.max_hold(Duration::from_secs(40)).lock().unwrap();
        assert!(guard.remaining() <= Duration::from_secs(40));
        assert_eq!(guard.owner().client(), Some(client.id()));
        let lock = client.fair_lock("job");
        assert_eq!(lock.holder().unwrap().unwrap().owner, *guard.owner());
        assert!(lock.remaining_ttl().unwrap().unwrap() <= Duration::from_secs(40));
        assert_eq!(lock.inspect().unwrap().queue_len, 0);
        let again = guard.reenter().unwrap();
        assert_eq!(again.release().unwrap(), Release::StillHeld(1));
        guard.detach().unwrap();
        assert!(lock.force_unlock().unwrap());
        // The async and the blocking part of a program share one client.
        let same = Client::from(client.as_async().clone());
        let guard = same.fair_lock("shared").lock().unwrap();
        assert!(client.fair_lock("shared").try_lock().unwrap().is_some(), "the same thread");
        drop(guard);
        same.shutdown().unwrap();
        assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Closed);
        let error = client.fair_lock("job").lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(error.lock().unwrap().as_bytes(), b"job");
    });
}
