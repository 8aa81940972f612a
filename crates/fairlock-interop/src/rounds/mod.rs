//! Random scripts that Rust and Java play together on one lock, checked afterwards.
//!
//! A round is a [`script`] derived from a seed alone, [`play`]ed once, and checked by [`checker`]
//! against what the server executed and what the callers saw. The seed of a round is printed with
//! every violation; it repeats the script, but not its exact timing.
//!
//! Two kinds of rounds take longer than the half second of the others, because their effects depend
//! on timeouts, and several are played concurrently: those with a Java client whose
//! [clock](run_clocks) is wrong, and those in which clients are [killed](run_deaths).

pub mod checker;
pub mod deaths;
pub mod notes;
pub mod play;
pub mod script;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fairlock_testkit::server::Server;

use self::checker::{HandOvers, Order};
use self::deaths::Deaths;
use self::notes::Played;
use self::play::{ANSWERED_WITHIN, Clients};
use self::script::Script;
use crate::java::Java;
use crate::version::Version;
use crate::watch::{Command, Step, Watch, What};

/// A slower wake-up was caused by a timeout, not by a message.
pub const SLOW: Duration = Duration::from_millis(500);

/// The result of a number of rounds.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of rounds played.
    pub rounds: u64,
    /// Calls made in them.
    pub operations: usize,
    /// Hand-overs by direction, and how fast the next holders woke up.
    pub hand_overs: HandOvers,
    /// Violations, each with its seed.
    pub violations: Vec<String>,
    /// Rounds that do not count because a Java client failed by itself; others were played instead.
    pub spoiled: Vec<String>,
    /// Rounds with a wake-up to or from ours that took longer than [`SLOW`], reported like
    /// violations.
    pub slow: Vec<String>,
}

/// How far the clock of a Java client is off, in microseconds.
const TEN_MINUTES_US: i64 = 600_000_000;

/// How many commands of a violation's round are printed, from its start and from its end.
const TOLD: usize = 2000;

/// How many rounds of a run may be spoiled. With Redisson 3.16, or on a busy machine, one in fifty
/// is.
const SPOILED_MAX: usize = 25;

/// How many long rounds are played concurrently.
const AT_ONCE: u64 = 8;

/// A waiter dropped by a client with a wrong clock asks again when the TTL that it saw has ended,
/// after at most five seconds, and may be dropped again.
const DROPPED_ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Plays `rounds` scripts, of this seed and those that follow it.
///
/// # Panics
///
/// If server or JVM do not work.
pub async fn run(server: &Server, java: &Java, rounds: u64, seed: u64) -> Report {
    let watch = Watch::start(server.addr());
    let mut sets = Clients::several(server.addr(), [java, java], 1, ANSWERED_WITHIN).await;
    let mut report = Report::default();
    for seed in (0..).map(|round: u64| seed.wrapping_add(round)) {
        if report.rounds == rounds {
            break;
        }
        let script = Script::new(seed, java.version());
        let lock = format!("round-{seed}");
        // Discards the background activity of the previous round.
        drop(watch.take());
        let played = play::play(&sets[0], &script, &lock).await;
        let commands = watch.take();
        let steps = watch.story(&lock, &commands);
        let dropped = (java.version() == Version::V3_16).then(|| dropped_alive(&played, &steps));
        if let Some(what) = played.spoiled.clone().or_else(|| dropped.flatten())
            && report.spoiled.len() < SPOILED_MAX
        {
            report.spoiled.push(format!("seed {seed}: {what}"));
            // Threads of the old set may wait for minutes.
            sets = Clients::several(server.addr(), [java, java], 1, ANSWERED_WITHIN).await;
            continue;
        }
        let round =
            Round { seed, order: order_of(&script), calls: script.operations(), lock: &lock };
        let left = checker::what_is_left(server.addr(), &lock, &[]).await;
        report.add(&round, &script, &played, &steps, &commands, left);
    }
    report
}

/// Like [`run`], with one of the two Java clients ten minutes ahead of all others, and then ten
/// minutes behind. Returns `None`, with a message, where that is not possible: without a C
/// compiler, and with 3.16, whose waiters sleep for minutes after they were dropped.
///
/// # Panics
///
/// As [`run`].
pub async fn run_clocks(server: &Server, java: &Java, rounds: u64, seed: u64) -> Option<Report> {
    if java.version() == Version::V3_16 {
        eprintln!("SKIPPED beside Redisson {}: dropped waiters sleep for minutes", java.version());
        return None;
    }
    let mut report = Report::default();
    let half = rounds.div_ceil(2);
    for (offset_us, first, count) in
        [(TEN_MINUTES_US, 0, half), (-TEN_MINUTES_US, half, rounds - half)]
    {
        let wrong = Java::with_clock(java.version())?;
        wrong.clock().set_offset(offset_us);
        let all = usize::try_from(AT_ONCE).expect("a few");
        let javas = [java, &wrong];
        let sets = Clients::several(server.addr(), javas, all, DROPPED_ANSWERED_WITHIN).await;
        // A waiter that was dropped and entered again sleeps until it is notified, and those who
        // drop it notify nobody.
        let sets: Vec<_> = sets.into_iter().map(Clients::looking).collect();
        let seeds: Vec<_> = (first..first + count).map(|round| seed.wrapping_add(round)).collect();
        for seeds in seeds.chunks(all) {
            together(server.addr(), &sets, seeds, &mut report).await;
        }
    }
    // Half of the hand-overs happen by timeout.
    report.hand_overs = HandOvers::default();
    report.slow.clear();
    Some(report)
}

async fn together(server: SocketAddr, sets: &[Clients], seeds: &[u64], report: &mut Report) {
    let watch = Watch::start(server);
    let mut playing = tokio::task::JoinSet::new();
    for (clients, &seed) in sets.iter().cloned().zip(seeds) {
        playing.spawn(async move {
            let script = Script::new(seed, clients.version());
            let lock = format!("clocks-{seed}");
            let played = play::play(&clients, &script, &lock).await;
            let left = checker::what_is_left(server, &lock, &[]).await;
            (seed, lock, script, played, left)
        });
    }
    let played = playing.join_all().await;
    let commands = watch.take();
    for (seed, lock, script, played, left) in played {
        let steps = watch.story(&lock, &commands);
        let spoiled = played.spoiled.clone().or_else(|| dropped_alive(&played, &steps));
        if let Some(what) = spoiled {
            report.spoiled.push(format!("seed {seed}: {what}"));
            continue;
        }
        let order = match order_of(&script) {
            Order::Fifo => Order::FifoOfThePresent,
            other => other,
        };
        let round = Round { seed, order, calls: script.operations(), lock: &lock };
        report.add(&round, &script, &played, &steps, &of_lock(&lock, &commands), left);
    }
}

/// Rounds in which holders and waiters of both sides are killed. `worker` is the program
/// `fairlock-interop`.
///
/// # Panics
///
/// As [`run`].
pub async fn run_deaths(
    server: &Server,
    java: &Java,
    worker: &Path,
    rounds: u64,
    seed: u64,
) -> Report {
    let mut report = Report::default();
    let seeds: Vec<_> = (0..rounds).map(|round| seed.wrapping_add(round)).collect();
    for seeds in seeds.chunks(usize::try_from(AT_ONCE).expect("a few")) {
        let watch = Watch::start(server.addr());
        let played = deaths::play(server, java, worker, seeds).await;
        let commands = watch.take();
        for (deaths, mut played) in played {
            let lock = deaths.lock();
            let steps = watch.story(&lock, &commands);
            deaths.add_the_doomed(&mut played, &steps);
            let left = checker::what_is_left(server.addr(), &lock, &played.dead()).await;
            let Deaths { seed, .. } = deaths;
            let round = Round { seed, order: Order::Fifo, calls: deaths.calls(), lock: &lock };
            report.add(&round, &deaths, &played, &steps, &of_lock(&lock, &commands), left);
        }
    }
    // Most hand-overs happen by timeout.
    report.hand_overs = HandOvers::default();
    report.slow.clear();
    report
}

/// Finds a live Java waiter that Java dropped. A `tryLockAsync` that gives up takes five minutes
/// from the scores of all behind it, whatever it added, and a client with a wrong clock judges live
/// waiters dead. Since 3.32 they ask again when the TTL ends, enter again, and then sleep for
/// minutes; before, they do so at once. A waiter dropped while asleep receives nothing any more.
fn dropped_alive(played: &Played, steps: &[Step]) -> Option<String> {
    let was_dropped = |owner: &&String| {
        let last = steps.iter().rfind(|step| step.owner == **owner);
        last.is_some_and(|step| step.what == What::Leaves)
    };
    let owner = played.unanswered.iter().find(was_dropped)?;
    Some(format!("Java's {owner} was dropped alive, and sleeps"))
}

fn order_of(script: &Script) -> Order {
    if script.is_fair { Order::Fifo } else { Order::Any }
}

/// The commands that name the lock or one of its keys.
fn of_lock(lock: &str, commands: &[Command]) -> Vec<Command> {
    let is_its = |word: &String| word.contains(lock);
    commands.iter().filter(|command| command.words.iter().any(is_its)).cloned().collect()
}

/// The identity of a round.
struct Round<'a> {
    seed: u64,
    order: Order,
    calls: usize,
    lock: &'a str,
}

impl Report {
    fn add(
        &mut self,
        round: &Round<'_>,
        script: &impl fmt::Display,
        played: &Played,
        steps: &[Step],
        commands: &[Command],
        left: Option<String>,
    ) {
        let (mut violations, hand_overs) = checker::check(round.lock, round.order, played, steps);
        violations.extend(left);
        violations.extend(played.spoiled.clone());
        self.rounds += 1;
        self.operations += round.calls;
        let slowest = hand_overs.worst_with_ours();
        self.hand_overs.add(hand_overs);
        if violations.is_empty() && slowest <= SLOW {
            return;
        }
        let told: Vec<_> = steps.iter().map(|step| format!("\n    {step:?}")).collect();
        let told_of =
            |at: usize| !(TOLD / 2..commands.len().saturating_sub(TOLD / 2)).contains(&at);
        let ran =
            commands.iter().enumerate().filter(|(at, _)| told_of(*at)).map(|(at, command)| {
                let Command { at_ns, script, words } = command;
                let gap = if at + 1 == TOLD / 2 { "\n    ..." } else { "" };
                format!("\n    {at_ns} script {script}: {}{gap}", words.join(" "))
            });
        let story = format!(
            "seed {}: {}\n  slowest {}\n  script: {script}\n  the queue:{}\n  what scripts ran:{}",
            round.seed,
            violations.join("\n  "),
            in_ms(slowest),
            told.concat(),
            ran.collect::<String>()
        );
        let list = if violations.is_empty() { &mut self.slow } else { &mut self.violations };
        list.push(story);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, operations, hand_overs, violations, .. } = self;
        write!(f, "{rounds} rounds, {operations} calls, {hand_overs}, ")?;
        write!(f, "{} violations", violations.len())?;
        if !self.spoiled.is_empty() {
            write!(f, ", {} more spoiled by Java", self.spoiled.len())?;
        }
        Ok(())
    }
}

/// Milliseconds with one decimal.
pub(crate) fn in_ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
