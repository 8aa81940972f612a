//! F13: the process forks while it has a client, and the child continues without `exec`.

use crate::{LEASE, connect, say, start, take};
use fairlock::{Client, Error, ErrorKind, Guard, GuardState, Release};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every call of the child returns at once; this is slack.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Children are forked at arbitrary points of the client thread's work.
const FORKS: u32 = 50;

/// Forks. Returns `None` in the child, which must end through [`end_child`].
#[allow(unsafe_code, reason = "no crate offers fork as a safe function")]
fn fork() -> Option<Pid> {
    // SAFETY: the other threads of this process may be at any point; they do not exist in the
    // child. The child uses nothing that they may have locked: fork itself makes the C library's
    // allocator consistent, standard output is not in use, and the library under test must not
    // touch its copies of anything, which is what is tested.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "fork: {}", std::io::Error::last_os_error());
    if id == 0 {
        // Unwinding would drop the parent's values.
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("in the child: {panic}");
            std::process::abort();
        }));
    }
    Pid::from_raw(id)
}

/// Exits without returning through the parent's `main`, whose values the child must not drop.
fn end_child() -> ! {
    std::process::exit(0);
}

/// Waits until the child has ended successfully.
fn await_child(child: Pid) {
    let until = Instant::now() + 4 * AT_ONCE;
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            assert_eq!(status.exit_status(), Some(0), "the child: {status:?}");
            return;
        }
        assert!(Instant::now() < until, "the child hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A parent that holds locks, and a child that lives for three leases and drops its copies of them.
pub(crate) fn once(url: &str) {
    let (runtime, client) = start(url);
    let guard = take(&client);
    let inner = runtime.block_on(guard.reenter()).unwrap();
    let plain = runtime.block_on(client.plain_lock("plain").lock()).unwrap();
    let Some(child) = fork() else {
        refuses(&client, &guard);
        let error = block_on(inner.release()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        let id = client.id();
        drop(plain);
        drop(guard);
        drop(client);
        // The test is about time: no one renews or releases for the child.
        std::thread::sleep(3 * LEASE);
        let own_runtime = super::runtime();
        let own = connect(&own_runtime, url);
        assert_ne!(own.id(), id);
        assert!(block_on(own.fair_lock("job").try_lock()).unwrap().is_none());
        assert!(block_on(own.plain_lock("plain").try_lock()).unwrap().is_none());
        let other = block_on(own.fair_lock("other").lock()).unwrap();
        assert_eq!(block_on(other.release()).unwrap(), Release::Released);
        end_child();
    };
    await_child(child);
    assert_eq!(guard.state(), GuardState::Held);
    runtime.block_on(async {
        client.ping().await.unwrap();
        assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(plain.release().await.unwrap(), Release::Released);
    });
}

/// The same on the host store. The child cannot open its file either: SQLite does not survive a
/// fork.
pub(crate) fn on_a_file(url: &str) {
    let (runtime, client) = start(url);
    let guard = take(&client);
    let Some(child) = fork() else {
        refuses(&client, &guard);
        drop(guard);
        drop(client);
        std::thread::sleep(3 * LEASE);
        let error = super::runtime().block_on(Client::connect(url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert!(error.to_string().contains("fork()"), "{error}");
        end_child();
    };
    await_child(child);
    assert_eq!(guard.state(), GuardState::Held);
    assert_eq!(runtime.block_on(guard.release()).unwrap(), Release::Released);
    // After a fork while the file is closed, both sides can open it.
    runtime.block_on(client.shutdown());
    drop(runtime);
    let Some(child) = once_closed(url) else {
        let own = connect(&super::runtime(), url);
        assert!(block_on(own.fair_lock("job").try_lock()).unwrap().is_some());
        end_child();
    };
    await_child(child);
}

/// Forks as soon as the library has closed the file, which it does in the background.
fn once_closed(url: &str) -> Option<Pid> {
    let path = url.trim_start_matches("sqlite:");
    let until = Instant::now() + AT_ONCE;
    // The last connection to close removes the log.
    while std::fs::exists(format!("{path}-wal")).unwrap() {
        assert!(Instant::now() < until, "the file stays open");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    fork()
}

/// The parent uses the client continuously and forks again and again.
pub(crate) fn under_load(url: &str) {
    let (runtime, client) = start(url);
    let guard = take(&client);
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let lock = client.fair_lock(format!("load{}", n % 4));
            let over = Arc::clone(&over);
            runtime.spawn(async move {
                let mut turns = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.unwrap();
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    let guard = Arc::new(guard);
    let looker = {
        let (client, guard, over) = (client.clone(), Arc::clone(&guard), Arc::clone(&over));
        // Many children are forked while one of these mutexes is locked; in the child it stays
        // locked.
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                assert!(!guard.lease().is_zero() && guard.hold_count() == 1);
                assert_eq!(client.warnings(), []);
            }
        })
    };
    for _ in 0..FORKS {
        let Some(child) = fork() else {
            refuses(&client, &guard);
            drop(guard);
            drop(client);
            end_child();
        };
        await_child(child);
        assert_eq!(guard.state(), GuardState::Held);
    }
    over.store(true, Ordering::Relaxed);
    looker.join().unwrap();
    let turns: u32 = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
    say(&format!("{turns} turns beside {FORKS} forks"));
    runtime.block_on(client.ping()).unwrap();
    let guard = Arc::into_inner(guard).expect("the thread that looked has ended");
    assert_eq!(runtime.block_on(guard.release()).unwrap(), Release::Released);
}

/// In the child, every use of the parent's values is a clear error, at once.
fn refuses(client: &Client, guard: &Guard) {
    assert_eq!(guard.state(), GuardState::Lost);
    assert!(guard.remaining().is_zero() && guard.lease().is_zero());
    assert_eq!((guard.hold_count(), client.warnings().len()), (0, 0));
    assert_eq!(guard.ensure_valid().unwrap_err().kind(), ErrorKind::Lost);
    let lock = client.fair_lock("free");
    let plain = client.plain_lock("job");
    let misuse = |what: &str, error: Error| {
        assert_eq!(error.kind(), ErrorKind::Misuse, "{what}: {error}");
    };
    block_on(guard.lost());
    misuse("ping", block_on(client.ping()).unwrap_err());
    misuse("lock", block_on(lock.lock()).unwrap_err());
    misuse("try_lock", block_on(lock.try_lock()).unwrap_err());
    misuse("try_lock_for", block_on(plain.try_lock_for(AT_ONCE)).unwrap_err());
    misuse("enqueue", block_on(lock.enqueue()).unwrap_err());
    misuse("inspect", block_on(lock.inspect()).unwrap_err());
    misuse("force_unlock", block_on(plain.force_unlock()).unwrap_err());
    misuse("reenter", block_on(guard.reenter()).unwrap_err());
    block_on(client.clone().shutdown());
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(AT_ONCE, work).await.expect("at once") })
}
