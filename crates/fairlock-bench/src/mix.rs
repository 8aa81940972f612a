//! Readers and writers of one lock who come again at once: how long a writer waits at most. On
//! servers they are divided among processes, which are this program, started with other arguments.

use crate::runtime;
use crate::stats::{percentile, ratio, us};
use fairlock::{Client, RwLock};
use fairlock_testkit::processes::Owned;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const TASKS: u32 = 100;

/// One task of so many writes, the others read.
const WRITES: u32 = 10;

/// Of a server's tasks.
const PROCESSES: u32 = 8;

/// The machine is shared, and one interruption lengthens a round's longest wait: their median is
/// reported.
const ROUNDS: u32 = 9;

/// How long each holds the lock. Without it, a turn would take microseconds, and the longest wait tell
/// how long the machine was busy elsewhere.
const HOLD: Duration = Duration::from_millis(1);

/// Goal: a writer's longest wait, of the one that is expected if all tasks take turns.
const GOAL: f64 = 1.5;

/// How many were served, and the longest wait of a writer.
type Seen = (u32, Duration);

pub(crate) fn report(span: Duration) {
    let runtime = runtime();
    let folder = TempDir::on_disk();
    let file = format!("sqlite:{}", folder.path().join("locks").display());
    for url in ["memory:", &file] {
        let client = runtime.block_on(Client::connect(url)).unwrap();
        let lock = client.rw_lock("mix");
        let store = url.split_inclusive(':').next().unwrap_or(url);
        rounds(store, span, || {
            runtime.block_on(round(&lock, span / ROUNDS, || Inside::begin(&lock)))
        });
    }
    for generation in [Generation::Redis70, Generation::Valkey91] {
        let Some(server) = Server::start(generation) else { continue };
        let client = runtime.block_on(Client::connect(&server.url())).unwrap();
        let lock = client.rw_lock("mix");
        let store = format!("{}, {PROCESSES} processes,", generation.name());
        let begin = || Outside::begin(&server.url());
        rounds(&store, span, || runtime.block_on(round(&lock, span / ROUNDS, begin)));
    }
}

fn rounds(store: &str, span: Duration, mut round: impl FnMut() -> Seen) {
    let (mut grants, mut worst, mut factors) = (0, Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (served, longest) = round();
        let expected = span / ROUNDS * TASKS / served;
        grants += served;
        factors.push(ratio(longest, expected));
        worst.push(longest);
    }
    factors.sort_by(f64::total_cmp);
    println!(
        "mix, {store} {TASKS} tasks, {} of them read: {:.0} grants/s; a writer's longest wait {}, \
         {:.2} of the expected one (goal {GOAL}), medians of {ROUNDS} rounds ({:.2} to {:.2})",
        TASKS - TASKS / WRITES,
        f64::from(grants) / span.as_secs_f64(),
        us(percentile(&mut worst, 50)),
        factors[factors.len() / 2],
        factors[0],
        factors[factors.len() - 1],
    );
}

/// The tasks of a round, wherever they run.
trait Crowd {
    /// Ends their turns. Who waits at the end counts with the wait so far.
    async fn stop(self) -> Seen;
}

async fn round<C: Crowd>(lock: &RwLock, span: Duration, begin: impl FnOnce() -> C) -> Seen {
    // All stand in line when it begins.
    let first = lock.write().await.unwrap();
    let crowd = begin();
    while lock.inspect().await.unwrap().queue_len < TASKS as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = first.release().await.unwrap();
    tokio::time::sleep(span).await;
    crowd.stop().await
}

/// In this process.
struct Inside {
    over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Seen>>,
}

impl Inside {
    fn begin(lock: &RwLock) -> Self {
        Self::of(lock, 0..TASKS)
    }

    fn of(lock: &RwLock, numbers: Range<u32>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let begin =
            |number| tokio::spawn(turns(lock.clone(), number % WRITES == 0, Arc::clone(&over)));
        Self { tasks: numbers.map(begin).collect(), over }
    }
}

impl Crowd for Inside {
    async fn stop(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        let (mut served, mut longest) = (0, Duration::ZERO);
        for task in self.tasks {
            let of_task = task.await.unwrap();
            served += of_task.0;
            longest = longest.max(of_task.1);
        }
        (served, longest)
    }
}

async fn turns(lock: RwLock, writes: bool, over: Arc<AtomicBool>) -> Seen {
    let (mut served, mut longest) = (0_u32, Duration::ZERO);
    // The first turn is about the queue that was there before.
    let mut began = false;
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let guard = if writes {
            let guard = lock.write().await.unwrap();
            longest = longest.max(if began { asked.elapsed() } else { Duration::ZERO });
            guard.into_guard()
        } else {
            lock.read().await.unwrap().into_guard()
        };
        tokio::time::sleep(HOLD).await;
        drop(guard);
        served += u32::from(began);
        began = true;
    }
    (served, longest)
}

/// In processes of their own.
struct Outside(Vec<Owned>);

impl Outside {
    fn begin(url: &str) -> Self {
        let start = |number: u32| {
            let (first, end) = (TASKS * number / PROCESSES, TASKS * (number + 1) / PROCESSES);
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["mix", "process", url, &first.to_string(), &end.to_string()]);
            Owned::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap()
        };
        Self((0..PROCESSES).map(start).collect())
    }
}

impl Crowd for Outside {
    async fn stop(mut self) -> Seen {
        // The end of its input tells each.
        self.0.iter_mut().for_each(|process| drop(process.stdin.take()));
        let (mut served, mut longest) = (0, Duration::ZERO);
        for process in &mut self.0 {
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let (of_process, nanos) =
                line.trim_end().split_once(' ').expect("what a process has seen");
            served += of_process.parse::<u32>().unwrap();
            longest = longest.max(Duration::from_nanos(nanos.parse().unwrap()));
        }
        (served, longest)
    }
}

/// One of the processes: takes turns until its input ends.
pub(crate) fn process(url: &str, first: &str, end: &str) {
    let numbers = first.parse().expect("FIRST")..end.parse().expect("END");
    let runtime = runtime();
    let inside = runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        Inside::of(&client.rw_lock("mix"), numbers)
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let (served, longest) = runtime.block_on(inside.stop());
    println!("{served} {}", longest.as_nanos());
}
