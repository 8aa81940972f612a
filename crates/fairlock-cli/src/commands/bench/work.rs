//! The workloads. Tasks belong to the caller, who ends them when a signal ends the measurement.
//!
//! Every request for a lock is made by a task, and no task is dropped during a request: a request that is given up
//! leaves a mark on the server for a while, so that a late copy of it has no effect.
//!
//! A store without a server answers at once, so a task that only uses locks never waits. Each loop therefore yields, so
//! that other tasks, signals and the end get their turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairlock::yardstick::Yardstick;
use fairlock::{Client, Error, Guard, GuardState, Lock, LockName};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet, coop};
use tokio::time::{self, MissedTickBehavior};

use super::times::Times;
use crate::base::clock;
use crate::base::exit::{Code, Failure};

/// The tasks of a workload, with their measurements.
#[derive(Default)]
pub(super) struct Tasks {
    set: JoinSet<Result<Times, Error>>,
    /// Tells the tasks to end as soon as they hold no lock and wait for none.
    ending: Arc<AtomicBool>,
}

impl Tasks {
    fn spawn<F>(&mut self, task: impl FnOnce(Arc<AtomicBool>) -> F)
    where
        F: Future<Output = Result<Times, Error>> + Send + 'static,
    {
        self.set.spawn(task(Arc::clone(&self.ending)));
    }

    /// Waits for the next task that ends; an error if it failed.
    async fn join_next(&mut self) -> Result<Option<Times>, Failure> {
        let ended = self.set.join_next().await.transpose();
        let ended = ended.map_err(|_| Failure::new(Code::INTERNAL, "bench: a task panicked"))?;
        Ok(ended.transpose()?)
    }

    /// Waits for all tasks, and adds up their measurements.
    async fn join_all(&mut self) -> Result<Times, Failure> {
        let mut times = Times::default();
        while let Some(more) = self.join_next().await? {
            times.merge(&more);
        }
        Ok(times)
    }

    /// Ends the tasks. Those that wait for a lock may have their turn once more, within `patience`.
    pub(super) async fn end(&mut self, patience: Duration) -> Result<(), Failure> {
        self.ending.store(true, Ordering::Relaxed);
        let ended = time::timeout(patience, self.join_all()).await;
        self.set.shutdown().await;
        self.ending.store(false, Ordering::Relaxed);
        ended.map_err(|_| too_slow())?.map(drop)
    }
}

/// Time between two looks at a queue while it grows or shrinks.
const POLL: Duration = Duration::from_millis(5);

/// How long a queue may take to grow or to empty: ten thousand waiters over a slow network.
const PATIENCE: Duration = Duration::from_secs(60);

/// Locks that are acquired at the same time.
const AT_ONCE: usize = 64;

/// Time between two round trips while renewals are observed: so few that they cost little themselves.
const PING_EACH: Duration = Duration::from_millis(1);

/// A renewal shows as more time left than at the last look; looks are a millisecond apart.
const RENEWED: Duration = Duration::from_millis(20);

/// The result of one step of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Empty if single operations are not distinguished.
    pub(super) times: Times,
    pub(super) per_second: f64,
}

/// The result of observing renewals.
#[derive(Clone, Debug, Default)]
pub(super) struct Renewals {
    pub(super) renewals_per_second: f64,
    /// The share of a core that this process used.
    pub(super) cpu: f64,
    /// Round trips to the server meanwhile; empty without a server.
    pub(super) pings: Times,
    /// Locks that were lost because the machine or the server was too slow.
    pub(super) lost: usize,
}

/// Measures round trips, one after the other.
pub(super) async fn ping(yardstick: &Yardstick, span: Duration) -> Result<Measured, Error> {
    let mut times = Times::default();
    let began = Instant::now();
    // At least once, however slow the machine: here and below.
    while times.count() == 0 || began.elapsed() < span {
        let sent = Instant::now();
        yardstick.ping().await?;
        times.add(sent.elapsed());
    }
    Ok(measured(times, began))
}

/// Measures the scripts of locks, in pipelines.
pub(super) async fn raw(yardstick: &Yardstick, span: Duration) -> Result<Measured, Error> {
    let began = Instant::now();
    let pairs = yardstick.pairs(span).await?;
    let per_second = pairs as f64 / began.elapsed().as_secs_f64();
    Ok(Measured { times: Times::default(), per_second })
}

/// Measures tasks that acquire and release, each its own lock.
pub(super) async fn uncontended(
    client: &Client,
    names: &[LockName],
    span: Duration,
    tasks: &mut Tasks,
) -> Result<Measured, Failure> {
    let began = Instant::now();
    for name in names {
        let lock = client.fair_lock(name.as_bytes());
        tasks.spawn(|ending| async move {
            let mut times = Times::default();
            let goes_on = || began.elapsed() < span && !ending.load(Ordering::Relaxed);
            while times.count() == 0 || goes_on() {
                let asked = Instant::now();
                let _ = lock.lock().await?.release().await?;
                times.add(asked.elapsed());
                coop::consume_budget().await;
            }
            Ok(times)
        });
    }
    let times = tasks.join_all().await?;
    Ok(measured(times, began))
}

/// What the tasks of a queue share.
#[derive(Default)]
struct Board {
    released: Option<Instant>,
    times: Times,
    turns: u64,
}

/// Measures the hand-over of one lock between tasks that re-queue immediately: from the release call to the next
/// holder's return. Every other task belongs to another client.
pub(super) async fn contended(
    clients: &[Client; 2],
    name: &LockName,
    waiters: u32,
    span: Duration,
    tasks: &mut Tasks,
) -> Result<Measured, Failure> {
    let locks = clients.each_ref().map(|client| client.fair_lock(name.as_bytes()));
    let first = acquire_all(&clients[0], std::slice::from_ref(name), tasks).await?;
    let board: Arc<Mutex<Board>> = Arc::default();
    for (_, lock) in (0..waiters).zip(locks.iter().cycle()) {
        tasks.spawn(|ending| turns(lock.clone(), Arc::clone(&board), ending));
    }
    tokio::select! {
        biased;
        // No task ends by itself, except with an error.
        ended = tasks.join_next() => { ended?; }
        queued = queue_is(&locks[0], waiters as usize) => queued?,
    }
    let began = Instant::now();
    board.lock().expect("nobody panics with it").released = Some(began);
    // The release is sent at once; it does not need the handle.
    drop(first);
    tokio::select! {
        biased;
        ended = tasks.join_next() => { ended?; }
        turned = has_turned(&board, began, span) => turned?,
    }
    let (times, turns, took) = {
        let mut board = board.lock().expect("nobody panics with it");
        (std::mem::take(&mut board.times), board.turns, began.elapsed())
    };
    // The next step must not meet these tasks.
    tasks.end(PATIENCE).await?;
    Ok(Measured { times, per_second: turns as f64 / took.as_secs_f64() })
}

async fn turns(
    lock: Lock,
    board: Arc<Mutex<Board>>,
    ending: Arc<AtomicBool>,
) -> Result<Times, Error> {
    let write = |with: &dyn Fn(&mut Board)| with(&mut board.lock().expect("nobody panics with it"));
    while !ending.load(Ordering::Relaxed) {
        let guard = lock.lock().await?;
        let now = Instant::now();
        write(&|board| {
            if let Some(released) = board.released.take() {
                board.times.add(now - released);
            }
            board.turns += 1;
            board.released = Some(Instant::now());
        });
        let _ = guard.release().await?;
        // A task that re-queues before the next one has requested the lock takes turns with nobody.
        task::yield_now().await;
    }
    Ok(Times::default())
}

/// Waits until the time is over and there was at least one turn.
async fn has_turned(board: &Mutex<Board>, began: Instant, span: Duration) -> Result<(), Failure> {
    time::sleep(span.saturating_sub(began.elapsed())).await;
    while board.lock().expect("nobody panics with it").times.count() == 0 {
        if began.elapsed() > PATIENCE {
            return Err(too_slow());
        }
        time::sleep(POLL).await;
    }
    Ok(())
}

/// Waits until so many waiters are in the queue.
async fn queue_is(lock: &Lock, waiters: usize) -> Result<(), Failure> {
    let looked = time::timeout(PATIENCE, async {
        while lock.inspect_first(0).await?.queue_len < waiters {
            time::sleep(POLL).await;
        }
        Ok::<_, Error>(())
    });
    Ok(looked.await.map_err(|_| too_slow())??)
}

/// Measures the cost of renewals of held locks; without locks, the same time for comparison.
pub(super) async fn held(
    client: &Client,
    names: &[LockName],
    yardstick: Option<&Yardstick>,
    window: Duration,
    tasks: &mut Tasks,
) -> Result<Renewals, Failure> {
    let guards = acquire_all(client, names, tasks).await?;
    let mut ticks = time::interval(PING_EACH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Renewals::default();
    let left = || guards.last().map_or(Duration::MAX, Guard::remaining);
    let (mut before, mut cycles) = (left(), 0_u64);
    let (began, cpu) = (Instant::now(), clock::cpu_time());
    // A machine that stood still must not miss the only renewal.
    let goes_on = |cycles| match began.elapsed() {
        elapsed if elapsed < window => true,
        elapsed => !guards.is_empty() && cycles == 0 && elapsed < window * 2,
    };
    while goes_on(cycles) {
        ticks.tick().await;
        if let Some(yardstick) = yardstick {
            let sent = Instant::now();
            yardstick.ping().await?;
            seen.pings.add(sent.elapsed());
        }
        let now = left();
        // All locks are renewed equally often.
        cycles += u64::from(now > before.saturating_add(RENEWED));
        before = now;
    }
    let took = began.elapsed().as_secs_f64();
    seen.cpu = clock::cpu_time().saturating_sub(cpu).as_secs_f64() / took;
    seen.renewals_per_second = (cycles * guards.len() as u64) as f64 / took;
    seen.lost = guards.iter().filter(|guard| guard.state() == GuardState::Lost).count();
    drop(guards);
    for name in names.iter().rev().take(1) {
        let lock = client.fair_lock(name.as_bytes());
        let freed = time::timeout(PATIENCE, async {
            while lock.is_locked().await? {
                time::sleep(POLL).await;
            }
            Ok::<_, Error>(())
        });
        freed.await.map_err(|_| too_slow())??;
    }
    Ok(seen)
}

/// Acquires several at the same time: over a slow network, one after the other would outlast the lease.
async fn acquire_all(
    client: &Client,
    names: &[LockName],
    tasks: &mut Tasks,
) -> Result<Vec<Guard>, Failure> {
    let (give, mut take) = mpsc::unbounded_channel();
    for at in 0..AT_ONCE.min(names.len()) {
        let locks: Vec<_> = names.iter().skip(at).step_by(AT_ONCE).cloned().collect();
        let (client, give) = (client.clone(), give.clone());
        tasks.spawn(|ending| async move {
            for name in locks {
                if ending.load(Ordering::Relaxed) {
                    break;
                }
                // If the measurement has ended, nobody takes the guard, and it is released.
                let _ = give.send(client.fair_lock(name.as_bytes()).lock().await?);
                coop::consume_budget().await;
            }
            Ok(Times::default())
        });
    }
    tasks.join_all().await?;
    drop(give);
    let mut guards = Vec::with_capacity(names.len());
    while let Some(guard) = take.recv().await {
        guards.push(guard);
    }
    Ok(guards)
}

fn measured(times: Times, began: Instant) -> Measured {
    let per_second = times.count() as f64 / began.elapsed().as_secs_f64();
    Measured { times, per_second }
}

fn too_slow() -> Failure {
    let message =
        "bench: the store takes more than a minute for this queue; use fewer --waiters or --held";
    Failure::new(Code::UNAVAILABLE, message)
}
