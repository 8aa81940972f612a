//! Random scripts that Rust and Java play together on one lock or latch, checked afterwards.
//!
//! A round is a [`script`] derived from a seed alone, [`play`]ed once, and checked by [`checker`]
//! against what the server executed and what the callers saw. The seed of a round is printed with
//! every violation; it repeats the script, but not its exact timing. The seed decides what the round is
//! [about](Game), too.
//!
//! Two kinds of rounds take longer than the half second of the others, because their effects depend
//! on timeouts, and several are played concurrently: those with a Java client whose
//! [clock](run_clocks) is wrong, and those in which clients are [killed](run_deaths).

pub mod checker;
pub mod deaths;
pub mod latches;
pub mod notes;
pub mod play;
pub mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fairlock_testkit::server::Server;

use self::checker::{HandOvers, Order};
use self::deaths::Deaths;
use self::latches::Latches;
use self::notes::Played;
use self::play::{ANSWERED_WITHIN, Clients};
use self::script::{Game, Script};
use crate::java::Java;
use crate::version::Version;
use crate::watch::{Command, Step, Watch, What};

/// A slower wake-up was caused by a timeout, not by a message.
pub const SLOW: Duration = Duration::from_millis(500);

/// The result of a number of rounds.
#[derive(Debug, Default)]
pub struct Report {
    /// Those of each kind.
    pub of: BTreeMap<Game, Tally>,
    /// Violations, each with its seed.
    pub violations: Vec<String>,
    /// Rounds that do not count because a Java client failed by itself; others were played instead.
    pub spoiled: Vec<String>,
    /// Rounds with a wake-up to or from ours that took longer than [`SLOW`], reported like
    /// violations.
    pub slow: Vec<String>,
}

/// The rounds of one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of rounds played.
    pub rounds: u64,
    /// Calls made in them.
    pub operations: usize,
    /// Hand-overs by direction, and how fast the next holders woke up.
    pub hand_overs: HandOvers,
    /// How many rounds had violations.
    pub violations: usize,
    /// How many were spoiled by Java.
    pub spoiled: usize,
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
        if report.all().rounds == rounds {
            break;
        }
        let game = Game::of(seed);
        if game == Game::Latch {
            let latches = Latches::new(seed);
            let name = format!("round-{seed}");
            drop(watch.take());
            let played = latches::play(&sets[0], &latches, &name).await;
            let left = checker::latches::what_is_left(server.addr(), &name, &sets[0].rust).await;
            let round = Round { seed, game, calls: latches.operations(), lock: &name };
            report.add(&round, &latches, &judged_latches(&round, &played, &watch.take(), left));
            continue;
        }
        let script = Script::new(seed, java.version(), game);
        let lock = format!("round-{seed}");
        // Discards the background activity of the previous round.
        drop(watch.take());
        let played = play::play(&sets[0], &script, &lock).await;
        let commands = watch.take();
        let (steps, wrong) = story(&watch, game, &lock, &commands);
        let dropped = (java.version() == Version::V3_16).then(|| dropped_alive(&played, &steps));
        if let Some(what) = played.spoiled.clone().or_else(|| dropped.flatten())
            && report.spoiled.len() < SPOILED_MAX
        {
            report.spoil(game, seed, &what);
            // Threads of the old set may wait for minutes.
            sets = Clients::several(server.addr(), [java, java], 1, ANSWERED_WITHIN).await;
            continue;
        }
        let round = Round { seed, game, calls: script.operations(), lock: &lock };
        let left = checker::what_is_left(server.addr(), &lock, &[]).await;
        let wrong = wrong.into_iter().chain(left);
        let judged = judged(&round, order_of(game), &played, &steps, &commands, wrong);
        report.add(&round, &script, &judged);
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
    report.forget_hand_overs();
    Some(report)
}

async fn together(server: SocketAddr, sets: &[Clients], seeds: &[u64], report: &mut Report) {
    let watch = Watch::start(server);
    let mut playing = tokio::task::JoinSet::new();
    for (clients, &seed) in sets.iter().cloned().zip(seeds) {
        playing.spawn(async move {
            let script = Script::new(seed, clients.version(), Game::of_locks(seed));
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
        let game = script.game;
        if let Some(what) = spoiled {
            report.spoil(game, seed, &what);
            continue;
        }
        let order = match order_of(game) {
            Order::Fifo => Order::FifoOfThePresent,
            other => other,
        };
        let round = Round { seed, game, calls: script.operations(), lock: &lock };
        let commands = of_lock(&lock, &commands);
        let judged = judged(&round, order, &played, &steps, &commands, left);
        report.add(&round, &script, &judged);
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
        let all = seeds.iter().map(|&seed| Deaths::new(seed, Game::of_deaths(seed))).collect();
        let played = deaths::play(server, java, worker, all).await;
        let commands = watch.take();
        for (deaths, mut played) in played {
            let (lock, seed, game) = (deaths.lock(), deaths.seed, deaths.game);
            let commands = of_lock(&lock, &commands);
            let round = Round { seed, game, calls: deaths.calls(), lock: &lock };
            let judged = if game == Game::Latch {
                let left = checker::latches::what_is_left(server.addr(), &lock, &[]).await;
                judged_latches(&round, &played, &commands, left)
            } else {
                let (steps, wrong) = story(&watch, game, &lock, &commands);
                deaths.add_the_doomed(&mut played, &steps);
                let left = checker::what_is_left(server.addr(), &lock, &played.dead()).await;
                let wrong = wrong.into_iter().chain(left);
                judged(&round, order_of(game), &played, &steps, &commands, wrong)
            };
            report.add(&round, &deaths, &judged);
        }
    }
    // Most hand-overs happen by timeout.
    report.forget_hand_overs();
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

fn order_of(game: Game) -> Order {
    match game {
        Game::Fair => Order::Fifo,
        Game::Plain => Order::Any,
        Game::ReadWrite | Game::Latch => Order::Shares,
    }
}

/// The commands that name the lock or one of its keys.
fn of_lock(lock: &str, commands: &[Command]) -> Vec<Command> {
    let is_its = |word: &String| word.contains(lock);
    commands.iter().filter(|command| command.words.iter().any(is_its)).cloned().collect()
}

/// What the server did to the queue and the holds of a lock, and what is wrong with that.
fn story(watch: &Watch, game: Game, lock: &str, commands: &[Command]) -> (Vec<Step>, Vec<String>) {
    match game {
        Game::ReadWrite => watch.story_of_shares(lock, commands),
        _ => (watch.story(lock, commands), Vec::new()),
    }
}

/// The identity of a round.
struct Round<'a> {
    seed: u64,
    game: Game,
    calls: usize,
    lock: &'a str,
}

/// What came of a round.
struct Judged {
    violations: Vec<String>,
    hand_overs: HandOvers,
    /// What explains a violation.
    story: String,
}

fn judged(
    round: &Round<'_>,
    order: Order,
    played: &Played,
    steps: &[Step],
    commands: &[Command],
    wrong: impl IntoIterator<Item = String>,
) -> Judged {
    let (mut violations, hand_overs) = checker::check(round.lock, order, played, steps);
    violations.extend(wrong);
    violations.extend(played.spoiled.clone());
    let told: String = steps.iter().map(|step| format!("\n    {step:?}")).collect();
    let story = format!("the queue:{told}\n  what scripts ran:{}", ran(commands));
    Judged { violations, hand_overs, story }
}

fn judged_latches(
    round: &Round<'_>,
    played: &Played,
    commands: &[Command],
    left: Option<String>,
) -> Judged {
    let story = checker::latches::story(round.lock, commands);
    let (mut violations, hand_overs) = checker::latches::check(&story, played);
    violations.extend(left);
    let told: String = played.latches.iter().map(|seen| format!("\n    {seen:?}")).collect();
    let story = format!("what callers saw:{told}\n  what scripts ran:{}", ran(commands));
    Judged { violations, hand_overs, story }
}

/// The commands of a violation's round, at most [`TOLD`].
fn ran(commands: &[Command]) -> String {
    let told_of = |at: usize| !(TOLD / 2..commands.len().saturating_sub(TOLD / 2)).contains(&at);
    let ran = commands.iter().enumerate().filter(|(at, _)| told_of(*at)).map(|(at, command)| {
        let Command { at_ns, script, words } = command;
        let gap = if at + 1 == TOLD / 2 { "\n    ..." } else { "" };
        format!("\n    {at_ns} script {script}: {}{gap}", words.join(" "))
    });
    ran.collect()
}

impl Report {
    fn add(&mut self, round: &Round<'_>, script: &impl fmt::Display, judged: &Judged) {
        let Judged { violations, hand_overs, story } = judged;
        let tally = self.of.entry(round.game).or_default();
        tally.rounds += 1;
        tally.operations += round.calls;
        tally.hand_overs.add(hand_overs.clone());
        tally.violations += usize::from(!violations.is_empty());
        let slowest = hand_overs.worst_with_ours();
        if violations.is_empty() && slowest <= SLOW {
            return;
        }
        let story = format!(
            "seed {}: {}\n  slowest {}\n  script: {script}\n  {story}",
            round.seed,
            violations.join("\n  "),
            in_ms(slowest),
        );
        let list = if violations.is_empty() { &mut self.slow } else { &mut self.violations };
        list.push(story);
    }

    fn spoil(&mut self, game: Game, seed: u64, what: &str) {
        self.of.entry(game).or_default().spoiled += 1;
        self.spoiled.push(format!("seed {seed}: {what}"));
    }

    /// Where hand-overs tell nothing.
    fn forget_hand_overs(&mut self) {
        self.of.values_mut().for_each(|tally| tally.hand_overs = HandOvers::default());
        self.slow.clear();
    }

    /// The sums of all kinds.
    pub fn all(&self) -> Tally {
        let mut all = Tally::default();
        for Tally { rounds, operations, hand_overs, violations, spoiled } in self.of.values() {
            all.rounds += rounds;
            all.operations += operations;
            all.hand_overs.add(hand_overs.clone());
            all.violations += violations;
            all.spoiled += spoiled;
        }
        all
    }
}

/// One line for each kind after the first.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds", self.all().rounds)?;
        for (game, tally) in &self.of {
            let Tally { rounds, operations, hand_overs, violations, spoiled } = tally;
            write!(f, "\n  {}: {rounds} rounds, {operations} calls, {hand_overs}, ", game.name())?;
            write!(f, "{violations} violations")?;
            if *spoiled > 0 {
                write!(f, ", {spoiled} more spoiled by Java")?;
            }
        }
        Ok(())
    }
}

/// Milliseconds with one decimal.
pub(crate) fn in_ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
