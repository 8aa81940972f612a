//! What the drivers in Rust have in common: commands on stdin, tasks that take turns, rows on stdout.
//! The protocol is in `bench-compare/README.md`; drivers in other languages speak the same.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, BufReader};

/// Every lock's lease, where a rival wants one: Redisson's default, and so ours.
pub const LEASE: Duration = Duration::from_secs(30);

/// How many locks are asked for at once when many are to be held.
const AT_ONCE: usize = 64;

/// Errors in a circle would be all that is measured.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// Tasks that have not come to their end, of all runs of this process.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// What a task wants of a lock that several may hold.
#[derive(Clone, Copy)]
pub struct Share {
    /// Of a read-write lock: whether it reads. The others write.
    pub reads: bool,
    /// Of a semaphore: how many permits there are. Each task takes one.
    pub permits: u32,
}

/// What one at a time has: a writer, or who takes the only permit.
const WHOLE: Share = Share { reads: false, permits: 1 };

/// One kind of lock, as its users would use it.
pub trait Rival: Clone + Send + Sync + 'static {
    /// What a task keeps between its turns.
    type Lock: Send + 'static;
    /// What says that it is held.
    type Guard: Send + 'static;

    /// The lock called `name`, for one task. One that knows no shares is held as a whole.
    fn lock(&self, name: &str, share: Share) -> Self::Lock;

    /// Waits for a turn, at most `wait`; `None` is an ordinary refusal.
    fn acquire(
        lock: &mut Self::Lock,
        wait: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Self::Guard>, String>> + Send;

    /// Lets go and waits for the answer.
    fn release(
        lock: &mut Self::Lock,
        guard: Self::Guard,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Nanoseconds of CLOCK_MONOTONIC, the same for all processes of a machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// What a run has seen so far.
#[derive(Default)]
struct Seen {
    /// Task; then asked, acquired, began to release, released.
    rows: Vec<[u64; 5]>,
    /// How long each refused request took.
    gave_up: Vec<u64>,
    errors: u64,
    first_error: String,
}

impl Seen {
    fn error(&mut self, error: String) {
        self.errors += 1;
        if self.first_error.is_empty() {
            self.first_error = error;
        }
    }

    fn line(&self) -> String {
        let mut line = String::from("{\"rows\":[");
        for (at, row) in self.rows.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let [task, asked, acquired, releasing, released] = row;
            let _ = write!(line, "{comma}{task},{asked},{acquired},{releasing},{released}");
        }
        line.push_str("],\"gave_up\":[");
        for (at, took) in self.gave_up.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(line, "{comma}{took}");
        }
        // Debug's escapes are close enough to JSON's for a message; what is left goes.
        let error: String =
            self.first_error.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
        let _ = write!(
            line,
            "],\"errors\":{},\"error\":\"{}\"}}",
            self.errors,
            error.replace(['"', '\\'], "'")
        );
        line
    }
}

/// One `run`: its numbers, and what the tasks share.
struct Run {
    locks: u64,
    name: String,
    wait: Option<Duration>,
    hold: Duration,
    /// Of 100 tasks, so many read.
    readers: u64,
    permits: u32,
    counter: Option<(String, MultiplexedConnection)>,
    over: AtomicBool,
    seen: Mutex<Seen>,
}

impl Run {
    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().expect("no task panics with it"));
    }

    /// What is done under the lock. The counter is read, and written from what was read: two at once lose one.
    async fn section(&self) -> Result<(), String> {
        if let Some((key, connection)) = &self.counter {
            let mut connection = connection.clone();
            let read: Option<u64> = connection.get(key).await.map_err(|e| e.to_string())?;
            let next = read.unwrap_or(0) + 1;
            let _: () = connection.set(key, next).await.map_err(|e| e.to_string())?;
        }
        if !self.hold.is_zero() {
            tokio::time::sleep(self.hold).await;
        }
        Ok(())
    }

    async fn turns<R: Rival>(self: Arc<Self>, rival: R, task: u64) {
        let share = Share { reads: task % 100 < self.readers, permits: self.permits };
        let mut lock = rival.lock(&format!("{}:{}", self.name, task % self.locks), share);
        while !self.over.load(Ordering::Relaxed) {
            let asked = now_ns();
            let guard = match R::acquire(&mut lock, self.wait).await {
                Ok(Some(guard)) => guard,
                Ok(None) => {
                    self.note(|seen| seen.gave_up.push(now_ns() - asked));
                    continue;
                }
                Err(error) => {
                    self.note(|seen| seen.error(error));
                    tokio::time::sleep(AFTER_ERROR).await;
                    continue;
                }
            };
            let acquired = now_ns();
            let done = self.section().await;
            let releasing = now_ns();
            let freed = R::release(&mut lock, guard).await;
            let released = now_ns();
            self.note(|seen| {
                seen.rows.push([task, asked, acquired, releasing, released]);
                for error in [done.err(), freed.err()].into_iter().flatten() {
                    seen.error(error);
                }
            });
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: the runner is gone, and so is the reason to be here.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints who this is and obeys stdin until it ends. `hello` is the inside of a JSON object.
pub async fn obey<R: Rival>(rival: R, url: &str, hello: &str) {
    say(&format!("{{\"hello\":{{{hello}}}}}"));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut current: Option<Arc<Run>> = None;
    let mut kept = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, words) = line.split_once(' ').unwrap_or((&line, ""));
        let words: HashMap<_, _> =
            words.split(' ').filter_map(|word| word.split_once('=')).collect();
        match verb {
            "run" => {
                let run = Arc::new(begin(&words, url).await);
                let (first, tasks) = (number(&words, "first"), number(&words, "tasks"));
                LEFT.fetch_add(tasks, Ordering::Relaxed);
                for task in first..first + tasks {
                    let turns = run.clone().turns(rival.clone(), task);
                    tokio::spawn(async {
                        turns.await;
                        LEFT.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                current = Some(run);
                say(&format!("{{\"running\":{tasks}}}"));
            }
            "hold" => {
                let (held, error) =
                    hold(&rival, words["name"], number(&words, "locks"), &mut kept).await;
                let error = error.replace(['"', '\\', '\n'], "'");
                say(&format!("{{\"held\":{held},\"error\":\"{error}\"}}"));
            }
            "stop" => {
                let seen = current.take().map_or_else(Seen::default, |run| {
                    run.over.store(true, Ordering::Relaxed);
                    std::mem::take(&mut *run.seen.lock().expect("no task panics with it"))
                });
                say(&seen.line());
            }
            "left" => say(&format!("{{\"left\":{}}}", LEFT.load(Ordering::Relaxed))),
            _ => panic!("unknown command: {line}"),
        }
    }
    // At once: waiters that are still there are the next run's nuisance, not something to wait for.
    std::process::exit(0);
}

fn number(words: &HashMap<&str, &str>, key: &str) -> u64 {
    words.get(key).map_or(0, |text| text.parse().expect("a number"))
}

async fn begin(words: &HashMap<&str, &str>, url: &str) -> Run {
    let counter = match words.get("counter") {
        Some(key) if *key != "-" => {
            let client = redis::Client::open(url).expect("a URL");
            let connection =
                client.get_multiplexed_async_connection().await.expect("the server answers");
            Some(((*key).to_owned(), connection))
        }
        _ => None,
    };
    let wait = number(words, "wait_ms");
    Run {
        locks: number(words, "locks").max(1),
        name: words["name"].to_owned(),
        wait: (wait > 0).then(|| Duration::from_millis(wait)),
        hold: Duration::from_millis(number(words, "hold_ms")),
        readers: number(words, "readers"),
        permits: u32::try_from(number(words, "permits").max(1)).expect("a limit"),
        counter,
        over: AtomicBool::new(false),
        seen: Mutex::default(),
    }
}

/// Takes locks of different names and keeps them. How many it got, and what stopped it.
async fn hold<R: Rival>(
    rival: &R,
    name: &str,
    locks: u64,
    kept: &mut Vec<(R::Lock, R::Guard)>,
) -> (usize, String) {
    let mut error = String::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut next = 0;
    loop {
        while next < locks && tasks.len() < AT_ONCE && error.is_empty() {
            let mut lock = rival.lock(&format!("{name}:{next}"), WHOLE);
            next += 1;
            tasks.spawn(async move {
                let guard = R::acquire(&mut lock, None).await;
                guard.map(|guard| guard.map(|guard| (lock, guard)))
            });
        }
        match tasks.join_next().await {
            None => return (kept.len(), error),
            Some(Ok(Ok(Some(held)))) => kept.push(held),
            Some(Ok(Ok(None))) => error = "refused".into(),
            Some(Ok(Err(text))) => error = text,
            Some(Err(panic)) => error = panic.to_string(),
        }
    }
}

/// The version of a dependency, from this workspace's lock file.
pub fn locked_version(package: &str) -> &'static str {
    let text = include_str!("../Cargo.lock");
    let start = format!("name = \"{package}\"\nversion = \"");
    let rest = text.split_once(start.as_str()).map_or("unknown", |(_, rest)| rest);
    rest.split('"').next().unwrap_or("unknown")
}
