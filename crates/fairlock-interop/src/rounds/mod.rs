//! Random scripts that Rust and Java play together on one lock, judged afterwards.
//!
//! A round is a [`script`] made from a seed alone, [`play`]ed once, and [`judge`]d by what the server
//! executed and what the callers saw. The seed of a round is printed with every violation; it repeats
//! the script, though not the moments in which the machine runs its parts.

pub mod judge;
pub mod play;
pub mod script;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fairlock_testkit::server::Server;

use self::judge::HandOvers;
use self::play::Stage;
use self::script::Script;
use crate::java::Java;
use crate::watch::{Command, Watch};

/// A wake-up that takes longer was not caused by a message, but by the clock.
pub const SLOW: Duration = Duration::from_millis(500);

/// What a number of rounds came to.
#[derive(Debug, Default)]
pub struct Report {
    /// How many were played.
    pub rounds: u64,
    /// Calls made in them.
    pub operations: usize,
    /// Who handed the lock to whom, and how fast those woke up.
    pub hand_overs: HandOvers,
    /// What must not happen and did, each with its seed.
    pub violations: Vec<String>,
    /// Rounds with a wake-up to or from ours that took longer than [`SLOW`], told like violations.
    pub slow: Vec<String>,
}

/// Plays `rounds` scripts, of this seed and those that follow it.
///
/// # Panics
///
/// If server or JVM do not work.
pub async fn run(server: &Server, java: &Java, rounds: u64, seed: u64) -> Report {
    let watch = Watch::start(server.addr());
    let stage = Stage::new(server.addr(), java).await;
    let mut report = Report::default();
    for seed in (0..rounds).map(|round| seed.wrapping_add(round)) {
        round(server.addr(), &stage, &watch, seed, &mut report).await;
    }
    report
}

async fn round(server: SocketAddr, stage: &Stage, watch: &Watch, seed: u64, report: &mut Report) {
    let script = Script::new(seed, stage.version());
    let lock = format!("round-{seed}");
    // What the last one left to do in the background is not this one's.
    drop(watch.take());
    let played = play::play(stage, &script, &lock).await;
    let commands = watch.take();
    let steps = watch.story(&lock, &commands);
    let (mut violations, hand_overs) = judge::judge(&lock, &script, &played, &steps);
    violations.extend(judge::what_is_left(server, &lock).await);
    report.rounds += 1;
    report.operations += script.operations();
    let slowest = hand_overs.worst_with_ours();
    report.hand_overs.add(hand_overs);
    if violations.is_empty() && slowest <= SLOW {
        return;
    }
    let told: Vec<_> = steps.iter().map(|step| format!("\n    {step:?}")).collect();
    let ran = commands.iter().map(|command| {
        let Command { at_ns, script, words } = command;
        format!("\n    {at_ns} script {script}: {}", words.join(" "))
    });
    let story = format!(
        "seed {seed}: {}\n  slowest {}\n  script: {script}\n  the queue:{}\n  what scripts ran:{}",
        violations.join("\n  "),
        in_ms(slowest),
        told.concat(),
        ran.collect::<String>()
    );
    let list = if violations.is_empty() { &mut report.slow } else { &mut report.violations };
    list.push(story);
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, operations, hand_overs, violations, .. } = self;
        write!(f, "{rounds} rounds, {operations} calls, {hand_overs}, ")?;
        write!(f, "{} violations", violations.len())
    }
}

/// Milliseconds with one digit behind the point.
pub(crate) fn in_ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
