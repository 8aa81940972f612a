//! Measures whether this machine let the tests run, and repeats what failed if it did not.

use std::collections::HashMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fairlock_testkit::processes;
use fairlock_testkit::server::{Generation, Server, ended_since};
use fairlock_testkit::threads::{self, Counts};

/// Attempts on a machine that pauses again and again.
const ATTEMPTS: u32 = 8;

/// The same for a whole test.
const RUNS: u32 = 4;

/// Measures for how long this process does not run: a machine short of memory stops everything for
/// seconds.
pub(crate) struct Pauses {
    began: Instant,
    seen: Arc<Mutex<Seen>>,
    before: HashMap<u32, Counts>,
}

struct Seen {
    /// When the watching thread last ran.
    last: Instant,
    longest: Duration,
    /// The sum of those longer than [`Pauses::SHORT`].
    together: Duration,
}

impl Pauses {
    /// Twice the watching thread's sleep between two looks.
    const SHORT: Duration = Duration::from_millis(10);

    /// Starts to watch, until it is dropped.
    pub(crate) fn watch() -> Self {
        let began = Instant::now();
        let (longest, together) = Default::default();
        let seen = Arc::new(Mutex::new(Seen { last: began, longest, together }));
        let watched = Arc::downgrade(&seen);
        std::thread::spawn(move || {
            while let Some(seen) = watched.upgrade() {
                drop(Self::look(&seen));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { began, seen, before: threads_of_the_test() }
    }

    /// The longest pause so far; or, if that is longer, the total time that a thread of this
    /// process, or of a server that it has started, waited for a processor. A thread that mostly
    /// sleeps gets a processor as soon as it wakes up, so the watching thread does not see such
    /// waits. A test that failed has dropped its servers: theirs were counted when they were
    /// killed.
    pub(crate) fn longest(&self) -> Duration {
        let mut now = ended_since(self.began);
        now.extend(threads_of_the_test());
        let waits = threads::since(&self.before, &now).map(|counts| counts.waited);
        waits.fold(Self::look(&self.seen).longest, Duration::max)
    }

    /// The longest time so far for which nothing in this process ran.
    pub(crate) fn of_all(&self) -> Duration {
        Self::look(&self.seen).longest
    }

    /// The sum of all pauses so far: for what takes several steps, each of which may be delayed.
    pub(crate) fn together(&self) -> Duration {
        Self::look(&self.seen).together
    }

    fn look(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
        let mut seen = seen.lock().unwrap();
        let pause = seen.last.elapsed();
        seen.longest = seen.longest.max(pause);
        if pause > Self::SHORT {
            seen.together += pause;
        }
        seen.last = Instant::now();
        seen
    }
}

/// Threads of this process and those that it has started. Empty if the kernel does not tell.
fn threads_of_the_test() -> HashMap<u32, Counts> {
    let own = std::process::id();
    let is_own = |process: &u32| *process == own || processes::parent(process) == Some(own);
    let of_the_test = processes::all().into_iter().filter(is_own);
    // One may be gone by now.
    of_the_test.filter_map(|process| threads::threads(process).ok()).flatten().collect()
}

/// Runs a test; once more if it failed and `pause` says that the machine stood still for `for_longer_than` meanwhile:
/// such a failure proves nothing.
pub(crate) fn unless_it_stands_still(
    for_longer_than: Duration,
    pause: &dyn Fn(&Pauses) -> Duration,
    runtime: &dyn Fn() -> tokio::runtime::Runtime,
    test: &dyn Fn(&tokio::runtime::Runtime),
) {
    for attempt in 1.. {
        let pauses = Pauses::watch();
        let runtime = runtime();
        let run = || test(&runtime);
        let Err(failure) = catch_unwind(AssertUnwindSafe(run)) else { return };
        // Before the runtime's threads end, and their records with them.
        let stood_still = pause(&pauses);
        drop(runtime);
        if stood_still < for_longer_than || attempt == RUNS {
            resume_unwind(failure);
        }
        let text = failure.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| failure.downcast_ref::<&str>().copied());
        fairlock_testkit::repeat(text.unwrap_or("a panic without text"), stood_still);
    }
}

/// Repeats an attempt that failed while this machine paused for longer than that; without a pause
/// it must succeed.
pub(crate) async fn unless_it_pauses<T, E: Debug>(
    for_longer_than: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let mut number = 1;
    loop {
        let pauses = Pauses::watch();
        let error = match attempt().await {
            Ok(value) => return value,
            Err(error) => error,
        };
        let longest = pauses.longest();
        assert!(longest > for_longer_than, "{error:?} without a pause ({longest:?})");
        assert!(number < ATTEMPTS, "this machine pauses all the time: {error:?}");
        fairlock_testkit::repeat(&format!("{error:?}"), longest);
        number += 1;
    }
}

/// The servers of a test that fails are dropped before it is asked whether they could run, and such
/// a test counted as one of a machine that never paused.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_is_gone_is_counted_too() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let began = Instant::now();
    let thread = server.pid();
    let before = threads::threads(thread).unwrap()[&thread];
    drop(server);
    let counted = ended_since(began)[&thread];
    assert!(counted.waited >= before.waited && counted.ran >= before.ran);
    assert!(!ended_since(Instant::now() + Duration::from_secs(60)).contains_key(&thread));
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_test_has_started_is_watched_too() {
    let mut server = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let watched = threads_of_the_test();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(watched.contains_key(&std::process::id()), "this one");
    assert!(watched.contains_key(&server.id()), "the one it has started");
    assert!(!watched.contains_key(&1), "another");
}
