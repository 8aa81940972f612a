//! A process that takes turns at the locks until its input ends.
//!
//! `fairlock-torture worker LOAD URL RESOURCE LEASE_MS SEED`

mod several;

use crate::log::note::{End, Note};
use crate::pace::HEARTBEAT;
use crate::resource::Access;
use crate::stalls;
use crate::wanted::Wanted;
use fairlock::{Client, Config, Error, Guard, Release, Share};
use fairlock_testkit::history::now_ns;
use fairlock_testkit::rng::Rng;
pub(crate) use several::NAMES as SEVERAL;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the worker processes of a run do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Load {
    /// Each client has one task for each contended lock, one that keeps a lock for long, so that every
    /// fault finds a holder, and some that move from lock to lock.
    OneByOne,
    /// Each turn is at several locks.
    Several,
}

const ROVERS: usize = 2;

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneByOne => "one-by-one",
            Self::Several => "several",
        }
    }

    /// Number of concurrent worker processes.
    pub(crate) fn processes(self) -> usize {
        match self {
            Self::OneByOne => 2,
            Self::Several => 16,
        }
    }

    /// Clients per process.
    pub(crate) fn clients(self) -> usize {
        match self {
            Self::OneByOne => 3,
            Self::Several => 1,
        }
    }

    fn tasks(self, contended: usize) -> Vec<Task> {
        match self {
            Self::OneByOne => of_each_client(contended).collect(),
            Self::Several => vec![Task::Several; several::TASKS],
        }
    }
}

/// Locks with hardly any contention, so that most are free.
const COLD: u64 = 1_000;

/// Names of each kind: few, so that they are contended; more than one, so that slots and servers
/// differ.
const FAIR: u64 = 4;
const PLAIN: u64 = 2;
const SIMPLE: u64 = 1;
const READ_WRITE: u64 = 2;
const SEMAPHORE: u64 = 1;

/// The locks that are kept for long.
const KEPT: [&str; 4] = ["kept-0", "kept-1", "kept-rw", "kept-sem"];

/// The role of a task.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Takes turns at the contended lock of this number. If all tasks moved from lock to lock, all
    /// would soon wait for the first lock of a dead holder, and nothing else would happen until its
    /// lease ended.
    Home(usize),
    Rover,
    Keeper,
    Several,
}

fn of_each_client(contended: usize) -> impl Iterator<Item = Task> {
    let homes = (0..contended).map(Task::Home);
    homes.chain(std::iter::repeat_n(Task::Rover, ROVERS)).chain([Task::Keeper])
}

/// The names of the contended locks.
fn contended() -> Arc<[String]> {
    let kinds = [
        ("fair", FAIR),
        ("plain", PLAIN),
        ("simple", SIMPLE),
        ("rw", READ_WRITE),
        ("sem", SEMAPHORE),
    ];
    let names =
        kinds.iter().flat_map(|(kind, count)| (0..*count).map(move |at| format!("{kind}-{at}")));
    names.collect()
}

/// An explicit lease: longer than any hold here, and not renewed.
const EXPLICIT: Duration = Duration::from_secs(4);

/// Longer than any fault: an operation that ends with `Unavailable` or `Unknown` is counted.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two checks of a guard while it is held.
const LOOK: Duration = Duration::from_millis(2);

/// How long a worker spins or blocks, and how much memory each of its threads uses.
const SUFFERED: Duration = Duration::from_millis(1_200);
const SPUN_BYTES: usize = 64 << 20;

pub(crate) fn run(args: &[&str]) {
    let [load, url, resource, lease, seed] = args else {
        panic!("worker LOAD URL RESOURCE LEASE_MS SEED, not {args:?}")
    };
    let load = [Load::OneByOne, Load::Several].into_iter().find(|known| known.name() == *load);
    let load = load.expect("a load");
    let resource: SocketAddr = resource.parse().unwrap();
    let rng = Rng::new(seed.parse().unwrap());
    let lease = Duration::from_millis(lease.parse().unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    watch_for_stalls();
    std::thread::spawn({
        let (stop, handle) = (Arc::clone(&stop), runtime.handle().clone());
        move || {
            for order in std::io::stdin().lines().map_while(Result::ok) {
                carry_out(&order, &handle);
            }
            // The input ended, or its writer did.
            stop.store(true, Ordering::SeqCst);
        }
    });
    runtime.block_on(take_turns(load, &config(url, lease), &contended(), resource, rng, stop));
    tell(&Note::Done);
}

/// Writes a line and flushes it, so that it is not lost if this process is killed right after.
fn tell(note: &Note) {
    let mut out = std::io::stdout().lock();
    // The reader is gone: the run is over.
    if writeln!(out, "{note}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Reports intervals in which this process did not run, stopped by the machine or by the nemesis.
fn watch_for_stalls() {
    let never = AtomicBool::new(false);
    std::thread::spawn(move || stalls::look(&never, |from, to| tell(&Note::Stalled { from, to })));
}

/// Plays faults of the nemesis inside this process.
fn carry_out(order: &str, runtime: &tokio::runtime::Handle) {
    let until = Instant::now() + SUFFERED;
    match order {
        // Occupies every processor, and memory that must be allocated.
        "spin" => {
            let spin = move || {
                let mut memory = Vec::new();
                while Instant::now() < until {
                    memory.resize(memory.len() + (1 << 16), 1_u8);
                    if memory.len() > SPUN_BYTES {
                        memory = Vec::new();
                    }
                }
            };
            let spinning: Vec<_> = (0..4).map(|_| std::thread::spawn(spin)).collect();
            for thread in spinning {
                thread.join().unwrap();
            }
        }
        // Blocks every runtime thread on which turns are taken.
        "block" => {
            let blocked: Vec<_> = (0..4)
                .map(|_| {
                    runtime.spawn(async move {
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    })
                })
                .collect();
            for task in blocked {
                while !task.is_finished() {
                    std::thread::sleep(LOOK);
                }
            }
        }
        other => panic!("what is {other}?"),
    }
    tell(&Note::Suffered { at: now_ns() });
}

fn config(url: &str, lease: Duration) -> Config {
    Config::from_url(url)
        .unwrap()
        .heartbeat(HEARTBEAT)
        .watchdog_lease(lease)
        .ping_interval(Duration::from_millis(500))
        .ping_timeout(Duration::from_secs(1))
        .response_timeout(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(4))
        .store_timeout(STORE_TIMEOUT)
}

async fn take_turns(
    load: Load,
    config: &Config,
    contended: &Arc<[String]>,
    resource: SocketAddr,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
) {
    let mut tasks = Vec::new();
    for _ in 0..load.clients() {
        let client = connected(config).await;
        tell(&Note::Client { id: client.id().to_string() });
        for task in load.tasks(contended.len()) {
            let player = Player {
                client: client.clone(),
                contended: Arc::clone(contended),
                access: Access::to(resource),
                rng: Rng::new(rng.below(1 << 40)),
                task,
            };
            tasks.push(tokio::spawn(player.play(Arc::clone(&stop))));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// A replacement worker may start in the middle of a fault.
async fn connected(config: &Config) -> Client {
    let began = Instant::now();
    loop {
        match Client::with_config(config.clone()).await {
            Ok(client) => return client,
            Err(error) => assert!(began.elapsed() < STORE_TIMEOUT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct Player {
    client: Client,
    contended: Arc<[String]>,
    access: Access,
    rng: Rng,
    task: Task,
}

impl Player {
    async fn play(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::SeqCst) {
            let (name, turn) = match self.task {
                Task::Several => self.turn_at_several().await,
                _ => {
                    let (wanted, name) = self.choose();
                    let turn = self.turn(wanted, &name).await;
                    (name, turn)
                }
            };
            if let Err(error) = turn {
                let kind = format!("{:?}", error.kind());
                tell(&Note::Failed { at: now_ns(), lock: name, kind });
            }
        }
    }

    fn choose(&mut self) -> (Wanted, String) {
        let name = match self.task {
            Task::Keeper => self.rng.pick(&KEPT).to_owned(),
            _ if self.rng.chance(5) => format!("fair-cold-{}", self.rng.below(COLD)),
            Task::Home(number) => self.contended[number].clone(),
            Task::Rover | Task::Several => {
                let all = Arc::clone(&self.contended);
                all[self.rng.below(all.len() as u64) as usize].clone()
            }
        };
        let wanted = Wanted::new(&self.client, &name, &mut self.rng);
        let keeps = matches!(self.task, Task::Keeper);
        let wanted = if !keeps && self.rng.chance(10) { wanted.lease(EXPLICIT) } else { wanted };
        (wanted, name)
    }

    /// One acquisition, or an attempt.
    async fn turn(&mut self, wanted: Wanted, name: &str) -> Result<(), Error> {
        let (asked, share) = (now_ns(), wanted.share());
        let style = self.rng.below(20);
        let patience = Duration::from_millis(self.rng.between(20, 800));
        if style < 2 {
            match wanted.try_for(patience).await? {
                Some(guard) => self.hold(guard, share, asked, name).await?,
                None => tell(&Note::Missed { at: now_ns() }),
            }
            return Ok(());
        }
        let Some(mut turn) = wanted.enqueue(name).await? else {
            let guard = wanted.lock().await?;
            return self.hold(guard, share, asked, name).await;
        };
        let owner = turn.owner().to_string();
        let (at, lock) = (now_ns(), name.to_owned());
        tell(&Note::Placed { at, asked, lock, owner: owner.clone(), share });
        let gave_up = || {
            let (at, lock, owner) = (now_ns(), name.to_owned(), owner.clone());
            tell(&Note::Ended { at, lock, owner, end: End::GaveUp });
        };
        let waited =
            if style == 2 { turn.wait_for(patience).await } else { turn.wait().await.map(Some) };
        match waited {
            Ok(Some(guard)) => self.hold(guard, share, asked, name).await,
            Ok(None) => {
                gave_up();
                turn.leave().await?;
                tell(&Note::Left { at: now_ns(), lock: name.to_owned(), owner });
                Ok(())
            }
            Err(error) => {
                gave_up();
                Err(error)
            }
        }
    }

    /// Holds the lock for a while, changes what it protects, and releases it.
    async fn hold(
        &mut self,
        guard: Guard,
        share: Share,
        asked: u64,
        name: &str,
    ) -> Result<(), Error> {
        let at = now_ns();
        let (lock, owner) = (name.to_owned(), guard.owner().to_string());
        let token = guard.token().get();
        // `at` was read before: the guard may only be valid for longer than noted.
        let valid_until = at + u64::try_from(guard.remaining().as_nanos()).unwrap();
        tell(&Note::Granted {
            at,
            asked,
            lock: lock.clone(),
            owner: owner.clone(),
            token,
            valid_until,
            share,
        });
        let millis = match (self.task, self.rng.below(10)) {
            // Long enough to be renewed.
            (Task::Keeper, 0) => self.rng.between(1_200, 3_500),
            (Task::Keeper, _) => self.rng.between(100, 800),
            (_, 0..=5) => 0,
            _ => self.rng.below(5),
        };
        let until = Instant::now() + Duration::from_millis(millis);
        // Permits do not fence: an older one may be valid.
        let fences = !matches!(share, Share::Permits { .. });
        let read = if fences { self.access.read(name, token) } else { None };
        // The last time at which the guard was certainly valid: a guard that is valid now has been
        // since its grant.
        let mut valid_at = at;
        let lost = loop {
            let now = now_ns();
            if guard.ensure_valid().is_err() {
                break true;
            }
            valid_at = now;
            if Instant::now() >= until {
                break false;
            }
            tokio::time::sleep(LOOK).await;
        };
        // Writes even with a lost guard, like a program that does not check it.
        let writes = share == Share::Whole;
        let accepted =
            read.is_some_and(|count| !writes || self.access.write(name, token, count + 1));
        let now = now_ns();
        let valid = !lost && guard.ensure_valid().is_ok();
        if valid {
            valid_at = now;
        }
        let (at, end) = (valid_at, if valid { End::Released } else { End::Lost });
        tell(&Note::Ended { at, lock: lock.clone(), owner: owner.clone(), end });
        // Those who read at the same time have one token, and write nothing.
        if writes || (fences && !accepted) {
            tell(&Note::Wrote { at: now, lock, owner: owner.clone(), token, accepted, valid });
        }
        if valid && name.starts_with("fair") && self.rng.chance(5) {
            // Re-enters and releases once: the count goes up and down, the token stays.
            let again = guard.reenter().await?;
            assert_eq!(again.token().get(), token, "the token of a hold");
            let held = again.release().await?;
            if !matches!(held, Release::StillHeld(1)) {
                let (at, lock, owner) = (now_ns(), name.to_owned(), owner.clone());
                tell(&Note::Said { at, lock, owner, outcome: format!("{held:?}") });
            }
        }
        let released = guard.release().await?;
        if released != Release::Released {
            let (at, lock) = (now_ns(), name.to_owned());
            tell(&Note::Said { at, lock, owner, outcome: format!("{released:?}") });
        }
        Ok(())
    }
}
