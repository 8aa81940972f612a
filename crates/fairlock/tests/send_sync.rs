//! What the public types and futures can be used for. The tables are compared with the snapshot of
//! the API, so they are complete.

use fairlock::{Client, Config, GuardState, Opened, Release};
use std::collections::BTreeSet;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

const TYPES: &str = "\
Check                Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Client               Send Sync Unpin -          -             Clone -    Debug
ClientId             Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
ClientInfo           Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Config               Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
ConnectionState      Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Credentials          Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Detached             Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Done<u8>             Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Election             Send Sync Unpin -          -             Clone -    Debug
Error                Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
ErrorKind            Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
FencingToken         Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Guard                Send Sync Unpin -          -             -     -    Debug
GuardState           Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Held                 Send Sync Unpin -          -             Clone -    Debug
Holder               Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
IdError              Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Kind                 Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Latch                Send Sync Unpin -          -             Clone -    Debug
Leader               Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Lock                 Send Sync Unpin -          -             Clone -    Debug
LockEntry            Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
LockName             Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
LockStatus           Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
LostReason           Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Locks                Send Sync Unpin -          -             -     -    Debug
Member               Send Sync Unpin -          -             Clone -    Debug
MultiGuard           Send Sync Unpin -          -             -     -    Debug
MultiHeld            Send Sync Unpin -          -             Clone -    Debug
MultiLock            Send Sync Unpin -          -             Clone -    Debug
NotATicket           Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Observer             Send Sync Unpin -          -             -     -    Debug
Opened               Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Owner                Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
OwnerId              Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Permit               Send Sync Unpin -          -             -     -    Debug
QueuedWaiter         Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
ReadGuard            Send Sync Unpin -          -             -     -    Debug
Reaction             Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Release              Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
ReleaseTicket        Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
Replicas             Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
RwLock               Send Sync Unpin -          -             Clone -    Debug
Semaphore            Send Sync Unpin -          -             Clone -    Debug
Share                Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
ShardedPubSub        Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Term                 Send Sync Unpin -          -             -     -    Debug
Turn                 Send Sync Unpin -          -             -     -    Debug
Usage                Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
Warning              Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
WriteGuard           Send Sync Unpin -          -             -     -    Debug
fence::Refusal       Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug
";

#[cfg(feature = "blocking")]
const BLOCKING: &str = "\
blocking::Client     Send Sync Unpin -          -             Clone -    Debug
blocking::Election   Send Sync Unpin -          -             Clone -    Debug
blocking::Guard      -    Sync Unpin -          -             -     -    Debug
blocking::Interrupt  Send Sync Unpin UnwindSafe RefUnwindSafe Clone -    Debug
blocking::Latch      Send Sync Unpin -          -             Clone -    Debug
blocking::Lock       Send Sync Unpin -          -             Clone -    Debug
blocking::Locks      Send Sync Unpin -          -             -     -    Debug
blocking::MultiGuard Send Sync Unpin -          -             -     -    Debug
blocking::MultiLock  Send Sync Unpin -          -             Clone -    Debug
blocking::Observer   Send Sync Unpin -          -             -     -    Debug
blocking::Permit     -    Sync Unpin -          -             -     -    Debug
blocking::ReadGuard  -    Sync Unpin -          -             -     -    Debug
blocking::RwLock     Send Sync Unpin -          -             Clone -    Debug
blocking::Semaphore  Send Sync Unpin -          -             Clone -    Debug
blocking::Term       -    Sync Unpin -          -             -     -    Debug
blocking::Turn       -    Sync Unpin -          -             -     -    Debug
blocking::WriteGuard -    Sync Unpin -          -             -     -    Debug
";

/// Whether a type has a trait: an inherent constant, if there is one, takes precedence over a
/// trait's.
macro_rules! has {
    ($type:ty: $($of:tt)+) => {{
        #[allow(dead_code, reason = "it is used where the type has not the trait")]
        trait Not {
            const HAS: bool = false;
        }
        impl<T> Not for T {}
        #[allow(dead_code, reason = "it stands for a type")]
        struct Probe<T>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "it is used where the type has the trait")]
        impl<T: $($of)+> Probe<T> {
            const HAS: bool = true;
        }
        <Probe<$type>>::HAS
    }};
}

/// A line of the table for each type.
macro_rules! rows {
    ($($type:ty),* $(,)?) => {
        [$((stringify!($type), [
            has!($type: Send), has!($type: Sync), has!($type: Unpin),
            has!($type: std::panic::UnwindSafe), has!($type: std::panic::RefUnwindSafe),
            has!($type: Clone), has!($type: Copy), has!($type: std::fmt::Debug),
        ])),*]
    };
}

fn table(rows: &[(&str, [bool; 8])]) -> String {
    let mut table = String::new();
    for (name, has) in rows {
        let columns = [
            ("Send", 5),
            ("Sync", 5),
            ("Unpin", 6),
            ("UnwindSafe", 11),
            ("RefUnwindSafe", 14),
            ("Clone", 6),
            ("Copy", 5),
            ("Debug", 5),
        ];
        let mut line = format!("{name:<21}");
        for ((column, width), has) in columns.iter().zip(has) {
            line += &format!("{:<width$}", if *has { *column } else { "-" });
        }
        table += line.trim_end();
        table.push('\n');
    }
    table
}

/// The names of the public types for which `belongs` is true; its argument is the text after the
/// name.
fn public_types(belongs: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let lines = crate::public_api::lines();
    let types = lines.iter().filter_map(|line| {
        let (name, what) = line.split_once(": ")?;
        let is_type =
            ["struct", "unit struct", "enum", "type"].iter().any(|kind| what.starts_with(kind));
        (is_type && belongs(what)).then(|| name.trim_start_matches("fairlock::").to_owned())
    });
    types.collect()
}

#[track_caller]
fn is_table(rows: &[(&str, [bool; 8])], expected: &str, types: BTreeSet<String>) {
    let seen = table(rows);
    assert!(seen == expected, "the types have:\n{seen}");
    let listed: BTreeSet<_> =
        rows.iter().map(|(name, _)| name.split('<').next().unwrap().to_owned()).collect();
    assert_eq!(listed, types, "the table has other types than docs/api.txt");
}

#[test]
fn types() {
    use fairlock::*;
    let rows = rows![
        Check,
        Client,
        ClientId,
        ClientInfo,
        Config,
        ConnectionState,
        Credentials,
        Detached,
        Done<u8>,
        Election,
        Error,
        ErrorKind,
        FencingToken,
        Guard,
        GuardState,
        Held,
        Holder,
        IdError,
        Kind,
        Latch,
        Leader,
        Lock,
        LockEntry,
        LockName,
        LockStatus,
        LostReason,
        Locks,
        Member,
        MultiGuard,
        MultiHeld,
        MultiLock,
        NotATicket,
        Observer,
        Opened,
        Owner,
        OwnerId,
        Permit,
        QueuedWaiter,
        ReadGuard,
        Reaction,
        Release,
        ReleaseTicket,
        Replicas,
        RwLock,
        Semaphore,
        Share,
        ShardedPubSub,
        Term,
        Turn,
        Usage,
        Warning,
        WriteGuard,
        fence::Refusal,
    ];
    is_table(&rows, TYPES, public_types(|what| !what.contains("[feature")));
}

/// Guards and turns of the blocking API stay on their thread.
#[cfg(feature = "blocking")]
#[test]
fn blocking_types() {
    use fairlock::blocking;
    let rows = rows![
        blocking::Client,
        blocking::Election,
        blocking::Guard,
        blocking::Interrupt,
        blocking::Latch,
        blocking::Lock,
        blocking::Locks,
        blocking::MultiGuard,
        blocking::MultiLock,
        blocking::Observer,
        blocking::Permit,
        blocking::ReadGuard,
        blocking::RwLock,
        blocking::Semaphore,
        blocking::Term,
        blocking::Turn,
        blocking::WriteGuard,
    ];
    is_table(&rows, BLOCKING, public_types(|what| what.contains("[feature blocking]")));
}

/// A sandbox stays on the thread whose clock it uses.
#[cfg(feature = "test-util")]
#[test]
fn types_for_tests() {
    use fairlock::test_util;
    let rows = rows![test_util::Sandbox];
    let expected = "\
test_util::Sandbox   -    -    Unpin -          -             -     -    Debug
";
    is_table(&rows, expected, public_types(|what| what.contains("[feature test-util]")));
}

#[test]
fn errors_go_everywhere() {
    fn is_error<T: std::error::Error + Send + Sync + Unpin + 'static>() {}
    is_error::<fairlock::Error>();
    is_error::<fairlock::IdError>();
}

/// The functions whose futures were checked to be `Send`.
#[derive(Default)]
struct Sent(BTreeSet<String>);

impl Sent {
    fn by<T: Future + Send>(&mut self, function: &str, future: T) -> T {
        self.0.insert(format!("fairlock::{function}"));
        future
    }
}

/// Every public async function, in a task that may move between threads.
#[tokio::test]
async fn futures() {
    let mut sent = Sent::default();
    let client = sent.by("Client::connect", Client::connect("memory:")).await.unwrap();
    let other = Client::with_config(Config::memory());
    drop(sent.by("Client::with_config", other).await.unwrap());
    sent.by("Client::ping", client.ping()).await.unwrap();

    let lock = client.fair_lock("job");
    let guard = sent.by("Lock::lock", lock.lock()).await.unwrap();
    let moment = Duration::from_millis(1);
    assert!(sent.by("Lock::try_lock", lock.try_lock()).await.unwrap().is_none());
    assert!(sent.by("Lock::try_lock_for", lock.try_lock_for(moment)).await.unwrap().is_none());
    assert!(sent.by("Lock::inspect", lock.inspect()).await.unwrap().holder.is_some());
    assert!(sent.by("Lock::inspect_first", lock.inspect_first(0)).await.unwrap().holder.is_some());
    let page = sent.by("Locks::next_page", client.locks().next_page()).await.unwrap();
    assert_eq!(page.unwrap().len(), 1);
    let ticket = client.plain_lock("ticket").lock().await.unwrap().release_ticket();
    let gone = sent.by("Client::release_by", client.release_by(&ticket)).await;
    assert_eq!(gone.unwrap_err().kind(), fairlock::ErrorKind::Lost, "the guard was dropped");
    assert!(sent.by("Lock::is_locked", lock.is_locked()).await.unwrap());
    assert!(sent.by("Lock::holder", lock.holder()).await.unwrap().is_some());
    assert!(sent.by("Lock::remaining_ttl", lock.remaining_ttl()).await.unwrap().is_some());

    let again = sent.by("Guard::reenter", guard.reenter()).await.unwrap();
    assert_eq!(again.token(), guard.token());
    assert!(sent.by("Lock::force_unlock", lock.force_unlock()).await.unwrap());
    drop(sent.by("Guard::state_changed", guard.state_changed(GuardState::Held)));
    drop(sent.by("Guard::lost", guard.lost()));
    assert_eq!(sent.by("Guard::release", guard.release()).await.unwrap(), Release::Lost);
    drop(again);
    let guard = lock.lock().await.unwrap();
    drop(sent.by("Guard::detach", guard.detach()).await.unwrap());
    lock.force_unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    drop(sent.by("Guard::detach_for", guard.detach_for(Duration::from_secs(60))).await.unwrap());
    lock.force_unlock().await.unwrap();

    drop(sent.by("Lock::with", lock.with(async |held| held.lost().await)));
    drop(sent.by("Lock::try_with", lock.try_with(|held| async move { held.lost().await })));
    let done = sent.by("Lock::try_with_for", lock.try_with_for(Duration::ZERO, async |held| held));
    let done = done.await.unwrap().unwrap();
    assert_eq!(done.release, Release::Released);
    sent.by("Held::lost", done.value.lost()).await;

    let mut turn = sent.by("Lock::enqueue", lock.enqueue()).await.unwrap();
    assert_eq!(sent.by("Turn::position", turn.position()).await.unwrap(), 0);
    drop(sent.by("Turn::wait_for", turn.wait_for(moment)).await.unwrap());
    drop(sent.by("Turn::wait", turn.wait()));
    sent.by("Turn::leave", turn.leave()).await.unwrap();
    shares(&mut sent, &client).await;
    let latch = client.latch("import");
    assert!(sent.by("Latch::try_set", latch.try_set(2)).await.unwrap());
    assert_eq!(sent.by("Latch::count_down", latch.count_down()).await.unwrap(), 1);
    assert_eq!(sent.by("Latch::count", latch.count()).await.unwrap(), 1);
    let moment = Duration::from_millis(1);
    assert_eq!(sent.by("Latch::wait_for", latch.wait_for(moment)).await.unwrap(), None);
    assert!(sent.by("Latch::delete", latch.delete()).await.unwrap());
    assert_eq!(sent.by("Latch::wait", latch.wait()).await.unwrap(), Opened::Gone);
    election(&mut sent, &client).await;
    several(&mut sent, &client).await;
    sent.by("Client::shutdown", client.shutdown()).await;

    let lines = crate::public_api::lines();
    let asynchronous = lines.iter().filter_map(|line| line.split_once(": async fn"));
    let expected: BTreeSet<_> = asynchronous.map(|(name, _)| name.to_owned()).collect();
    assert!(expected.len() > 20);
    assert_eq!(sent.0, expected, "an async function of docs/api.txt is missing here");
}

async fn shares(sent: &mut Sent, client: &Client) {
    let moment = Duration::from_millis(1);
    let rw = client.rw_lock("catalogue");
    let writing = sent.by("RwLock::write", rw.write()).await.unwrap();
    assert!(sent.by("RwLock::try_read", rw.try_read()).await.unwrap().is_none());
    assert!(sent.by("RwLock::try_write", rw.try_write()).await.unwrap().is_none());
    assert!(sent.by("RwLock::try_read_for", rw.try_read_for(moment)).await.unwrap().is_none());
    assert!(sent.by("RwLock::try_write_for", rw.try_write_for(moment)).await.unwrap().is_none());
    assert_eq!(sent.by("RwLock::inspect", rw.inspect()).await.unwrap().holding, 1);
    let reading = sent.by("WriteGuard::downgrade", writing.downgrade()).await.unwrap();
    drop(sent.by("RwLock::read", rw.read()).await.unwrap());
    let released = sent.by("ReadGuard::release", reading.release()).await.unwrap();
    assert_eq!(released, Release::Released);
    drop(sent.by("RwLock::enqueue_read", rw.enqueue_read()).await.unwrap());
    drop(sent.by("RwLock::enqueue_write", rw.enqueue_write()).await.unwrap());
    let read = sent.by("RwLock::with_read", rw.with_read(async |held| held.token())).await;
    let wrote = sent.by("RwLock::with_write", rw.with_write(async |held| held.token())).await;
    assert!(read.unwrap().value < wrote.unwrap().value);
    let writing = rw.write().await.unwrap();
    let released = sent.by("WriteGuard::release", writing.release()).await.unwrap();
    assert_eq!(released, Release::Released);
    assert_eq!(sent.by("RwLock::inspect_first", rw.inspect_first(0)).await.unwrap().holding, 0);
    assert_eq!(sent.by("RwLock::force_unlock", rw.force_unlock()).await.unwrap(), 0);

    let pool = client.semaphore("pool", 2);
    let one = sent.by("Semaphore::acquire", pool.acquire()).await.unwrap();
    let two = sent.by("Semaphore::acquire_many", pool.acquire_many(1)).await.unwrap();
    assert!(sent.by("Semaphore::try_acquire", pool.try_acquire()).await.unwrap().is_none());
    let none = sent.by("Semaphore::try_acquire_many", pool.try_acquire_many(2));
    assert!(none.await.unwrap().is_none());
    let none = sent.by("Semaphore::try_acquire_for", pool.try_acquire_for(moment));
    assert!(none.await.unwrap().is_none());
    let none = sent.by("Semaphore::try_acquire_many_for", pool.try_acquire_many_for(2, moment));
    assert!(none.await.unwrap().is_none());
    assert_eq!(sent.by("Semaphore::usage", pool.usage()).await.unwrap().used, 2);
    assert_eq!(sent.by("Semaphore::inspect", pool.inspect()).await.unwrap().holding, 2);
    let seen = sent.by("Semaphore::inspect_first", pool.inspect_first(0)).await.unwrap();
    assert_eq!(seen.holding, 2);
    let released = sent.by("Permit::release", one.release()).await.unwrap();
    assert_eq!(released, Release::Released);
    drop(two);
    assert_eq!(sent.by("Semaphore::force_unlock", pool.force_unlock()).await.unwrap(), 0);
    let done = sent.by("Semaphore::with", pool.with(async |held| held.token())).await.unwrap();
    let next =
        sent.by("Semaphore::try_with_for", pool.try_with_for(moment, async |held| held.token()));
    assert!(next.await.unwrap().unwrap().value > done.value);
}

async fn election(sent: &mut Sent, client: &Client) {
    let election = client.election("scheduler");
    let term = sent.by("Election::campaign", election.campaign("one")).await.unwrap();
    sent.by("Term::proclaim", term.proclaim("two")).await.unwrap();
    assert!(sent.by("Election::leader", election.leader()).await.unwrap().is_some());
    let mut observer = sent.by("Election::observe", election.observe()).await.unwrap();
    assert!(sent.by("Observer::changed", observer.changed()).await.unwrap().is_some());
    assert_eq!(sent.by("Term::resign", term.resign()).await.unwrap(), Release::Released);
    let guard = client.fair_lock("scheduler").lock().await.unwrap();
    drop(sent.by("Election::lead", election.lead(guard, "three")).await.unwrap());
    let ran = sent.by("Election::run", election.run("four", |term| async move { term.token() }));
    assert!(ran.await.unwrap().get() > 0);
    let terms = election.run_terms("five", |term| async move { ControlFlow::Break(term.token()) });
    assert!(sent.by("Election::run_terms", terms).await.unwrap().get() > 0);
}

async fn several(sent: &mut Sent, client: &Client) {
    let moment = Duration::from_millis(1);
    let lock = client.multi_lock(["several", "others"]).unwrap();
    let guard = sent.by("MultiLock::lock", lock.lock()).await.unwrap();
    assert!(sent.by("MultiLock::try_lock", lock.try_lock()).await.unwrap().is_none());
    let none = sent.by("MultiLock::try_lock_for", lock.try_lock_for(moment));
    assert!(none.await.unwrap().is_none());
    let changed = guard.state_changed(GuardState::Suspect);
    assert_eq!(sent.by("MultiGuard::state_changed", changed).await, GuardState::Held);
    let released = sent.by("MultiGuard::release", guard.release()).await.unwrap();
    assert_eq!(released, Release::Released);
    let held = sent.by("MultiLock::with", lock.with(async |held| held)).await.unwrap().value;
    sent.by("MultiHeld::lost", async move { held.lost().await }).await;
    let guard = lock.lock().await.unwrap();
    drop(sent.by("MultiGuard::lost", async move { guard.lost().await }));
}

/// A guard can be moved where it is needed: into a task, into a thread, and back.
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
