//! How guards end with their thread, and with the process.

use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

use super::threads::on_stores;
use crate::support::SOON;
use fairlock::ErrorKind;
use fairlock::blocking::{Client, Guard};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::wait;

thread_local! {
    static KEPT: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
    static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// Locks in the destructor of a thread-local that is older than the thread's owners.
struct AtTheEnd(Client);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        // The order of destructors decides whether the thread is still an owner, or is refused.
        let held = self.0.fair_lock("at the end").try_lock_for(Duration::from_secs(5));
        if let Err(error) = held {
            assert_eq!(error.kind(), ErrorKind::Misuse);
        }
        let owner = self.0.owner();
        let _ = self.0.fair_lock("at the end").owned_by(&owner).lock().unwrap().release().unwrap();
    }
}

#[test]
fn in_the_destructor_of_a_thread_local() {
    on_stores(|client, _| {
        for _ in 0..20 {
            let own = client.clone();
            std::thread::spawn(move || {
                // Initialised first, so it is dropped last.
                LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(own.clone())));
                for lock in [own.fair_lock("fair"), own.plain_lock("plain")] {
                    KEPT.with(|kept| kept.borrow_mut().push(lock.lock().unwrap()));
                    KEPT.with(|kept| kept.borrow_mut().push(lock.lock().unwrap()));
                }
            })
            .join()
            .unwrap();
            for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
                let free = lock.try_lock_for(Duration::from_secs(10)).unwrap();
                assert!(free.is_some(), "the guards of a thread that ended are released");
            }
        }
    });
}

/// Destructors of thread-locals run in the reverse order of their first uses, so those of tokio
/// are gone by then. A release that was begun on this thread entered a runtime there, which ended
/// the process.
#[test]
fn in_the_destructor_of_a_thread_local_that_is_older_than_tokios() {
    on_stores(|client, _| {
        let own = client.clone();
        let ended = std::thread::spawn(move || {
            LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(own.clone())));
            KEPT.with(|kept| kept.borrow_mut().reserve(1));
            let _ = own.fair_lock("other").lock().unwrap().release().unwrap();
            let guard = own.fair_lock("fair").lock().unwrap();
            KEPT.with(|kept| kept.borrow_mut().push(guard));
        });
        ended.join().unwrap();
        for name in ["fair", "at the end"] {
            let free = client.fair_lock(name).try_lock_for(Duration::from_secs(10)).unwrap();
            assert!(free.is_some(), "{name} is released");
        }
    });
}

const URL: &str = "FAIRLOCK_TEST_BLOCKING_URL";
const EXIT: &str = "FAIRLOCK_TEST_BLOCKING_EXIT";

/// Not a test of its own: `at_the_end_of_the_process` runs it in a child process.
#[test]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = Client::connect(&url).unwrap();
    let guard = client.fair_lock("job").lock().unwrap();
    KEPT.with(|kept| kept.borrow_mut().push(guard));
    drop(client.fair_lock("other").lock().unwrap());
    if std::env::var(EXIT).is_ok() {
        let waiting = client.clone();
        std::thread::spawn(move || {
            let _waits = waiting.fair_lock("job").lock();
        });
        let lock = client.fair_lock("job");
        wait::until("it waits", SOON, || lock.inspect().unwrap().queue_len == 1);
        std::process::exit(0);
    }
}

#[test]
fn at_the_end_of_the_process() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for exits in [false, true] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["blocking::drops::child", "--exact", "--test-threads=1"]);
        command.env(URL, server.url());
        if exits {
            command.env(EXIT, "1");
        }
        let began = Instant::now();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panicked"), "{errors}");
        if !exits {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
            let client = Client::connect(&server.url()).unwrap();
            for name in ["job", "other"] {
                // Guards dropped no later than the last handle of the client have been released.
                assert!(!client.fair_lock(name).is_locked().unwrap(), "{name}");
            }
        }
        let mut raw = server.client();
        raw.call(&["FLUSHALL"]);
    }
}
