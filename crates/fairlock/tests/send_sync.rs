//! What the public types and futures can be used for: checked when this is compiled.

use std::time::Duration;

use fairlock::{
    Client, ClientId, Config, ConnectionState, Detached, Done, Error, ErrorKind, FencingToken,
    Guard, GuardState, Held, Holder, Kind, Lock, LockName, LockStatus, Owner, OwnerId,
    QueuedWaiter, Release, Turn,
};

fn is_any<T: Send + Sync + Unpin + 'static>() {}
fn is_cloned<T: Clone>() {}
fn is_compared<T: Copy + Eq + std::hash::Hash>() {}
fn is_shown<T: std::fmt::Debug>() {}
fn is_unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}

macro_rules! each {
    ($check:ident: $($type:ty),* $(,)?) => {
        $($check::<$type>();)*
    };
}

#[test]
fn types() {
    each!(is_any: Client, ClientId, Config, ConnectionState, Detached, Done<u8>, Error, ErrorKind, FencingToken,
        Guard, GuardState, Held, Holder, Kind, Lock, LockName, LockStatus, Owner, OwnerId, QueuedWaiter,
        Release, Turn);
    each!(is_shown: Client, ClientId, Config, ConnectionState, Detached, Done<u8>, Error, ErrorKind,
        FencingToken, Guard, GuardState, Held, Holder, Kind, Lock, LockName, LockStatus, Owner, OwnerId,
        QueuedWaiter, Release, Turn);
    each!(is_cloned: Client, Config, Detached, Done<u8>, Error, Held, Holder, Lock, LockName, LockStatus, Owner,
        OwnerId, QueuedWaiter);
    each!(is_any: fairlock::ClientInfo);
    each!(is_shown: fairlock::ClientInfo);
    each!(is_cloned: fairlock::ClientInfo);
    each!(is_compared: ClientId, ConnectionState, ErrorKind, FencingToken, GuardState, Release);
    each!(is_unwind_safe: Config, Error, LockStatus);
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_types() {
    use fairlock::blocking;
    each!(is_any: blocking::Client, blocking::Lock, blocking::Interrupt);
    each!(is_shown: blocking::Client, blocking::Lock, blocking::Interrupt, blocking::Guard);
    each!(is_cloned: blocking::Client, blocking::Lock, blocking::Interrupt);
    fn is_looked_at<T: Sync + Unpin + 'static>() {}
    is_looked_at::<blocking::Guard>();
    is_looked_at::<blocking::Turn>();
    // Not `Send`: if it were, it would be a guard of either kind, and this could not be compiled.
    trait OnItsThread<Kind> {
        fn stays() {}
    }
    struct Sent;
    impl<T> OnItsThread<()> for T {}
    impl<T: Send> OnItsThread<Sent> for T {}
    <blocking::Guard as OnItsThread<_>>::stays();
    <blocking::Turn as OnItsThread<_>>::stays();
}

fn is_sent<T: Send>(future: T) -> T {
    future
}

/// Every public async function, on a task that may move between threads.
#[tokio::test]
async fn futures() {
    let client = is_sent(Client::connect("memory:")).await.unwrap();
    drop(is_sent(Client::with_config(Config::from_url("memory:").unwrap())).await.unwrap());
    let lock = client.fair_lock("job");
    let guard = is_sent(lock.lock()).await.unwrap();
    assert!(is_sent(lock.try_lock()).await.unwrap().is_none());
    assert!(is_sent(lock.try_lock_for(Duration::from_millis(1))).await.unwrap().is_none());
    assert!(is_sent(lock.inspect()).await.unwrap().holder.is_some());
    assert!(is_sent(lock.is_locked()).await.unwrap());
    assert!(is_sent(lock.holder()).await.unwrap().is_some());
    assert!(is_sent(lock.remaining_ttl()).await.unwrap().is_some());
    assert_eq!(is_sent(guard.reenter()).await.unwrap().token(), guard.token());
    assert!(is_sent(lock.force_unlock()).await.unwrap());
    drop(is_sent(guard.state_changed(GuardState::Held)));
    drop(is_sent(guard.lost()));
    assert_eq!(is_sent(guard.release()).await.unwrap(), Release::Lost);
    drop(is_sent(is_sent(lock.lock()).await.unwrap().detach()).await.unwrap());
    lock.force_unlock().await.unwrap();
    drop(is_sent(lock.with(async |held| held.lost().await)));
    drop(is_sent(lock.try_with(|held| async move { held.lost().await })));
    let done = is_sent(lock.try_with_for(Duration::ZERO, async |held| held.token()));
    assert_eq!(done.await.unwrap().unwrap().release, Release::Released);
    let mut turn = is_sent(lock.enqueue()).await.unwrap();
    assert_eq!(is_sent(turn.position()).await.unwrap(), 0);
    drop(is_sent(turn.wait_for(Duration::from_millis(1))).await.unwrap());
    drop(is_sent(turn.wait()));
    is_sent(turn.leave()).await.unwrap();
    is_sent(client.ping()).await.unwrap();
    is_sent(client.shutdown()).await;
}

/// A guard goes where it is needed: into a task, into a thread, and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_moves_between_threads() {
    let client = Client::connect("memory:").await.unwrap();
    let guard = client.fair_lock("job").lock().await.unwrap();
    let token = guard.token();
    let guard = tokio::spawn(async move { guard }).await.unwrap();
    let guard = std::thread::spawn(move || guard).join().unwrap();
    let shared = std::sync::Arc::new(guard);
    let other = std::sync::Arc::clone(&shared);
    let seen = std::thread::spawn(move || other.token()).join().unwrap();
    assert_eq!(seen, token);
    drop(shared);
    assert!(!client.fair_lock("job").is_locked().await.unwrap());
}
