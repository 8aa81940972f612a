//! The options of a run.

use crate::deployment::Topology;
use crate::notes;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

pub(crate) const USAGE: &str =
    "usage: fairlock-torture topologies [--seconds N] [--only NAMES] [--short] [OPTION...]
       fairlock-torture commit|nightly|release [--shard K/N] [--only NAMES] [--out FILE] [OPTION...]
       fairlock-torture merge FILE...

  topologies    a few kinds of fault on each topology, with quiet between them
  commit        all kinds of fault, a minute; nightly, release: a shard of at most 8 minutes
  merge         adds up what shards have written, as Markdown

  --seconds N   how long faults are injected on each topology (60)
  --shard K/N   which of the shards of a seed this is: each makes other choices
  --seed N      repeats the choices of a run
  --only NAMES  these of single,sentinel,cluster,host,several, and lockset
  --faults TEXT only faults whose names contain this
  --out FILE    writes what was counted, for `merge`
  --notes DIR   where a run leaves what explains its violations (target/torture-notes)
  --short       the profile for CI: 8 seconds, and not every kind of fault has to be played
  --sabotage    delete locks and say nothing: the checker must find it";

/// What a run must have done, by its profile, for its result to mean anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Minimum {
    /// Per second of the span.
    pub(crate) acquisitions_a_second: u64,
    /// Faults that took effect.
    pub(crate) faults: usize,
    /// Whether each kind must be among them.
    pub(crate) every_kind: bool,
    /// Grants outside of all disturbances, whose order was checked.
    pub(crate) checked_order: u64,
}

/// How faults follow each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pace {
    /// The faults specific to the topology, one after another, with enough quiet in between to
    /// check the order of many grants.
    Calm,
    /// All kinds, some at once, the next one soon after a recovery.
    Hard,
}

/// What runs, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// `None` for the lock-set workload, which needs no topology.
    pub(crate) topology: Option<Topology>,
    pub(crate) seconds: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) spans: Vec<Span>,
    pub(crate) pace: Pace,
    /// Whether the first span runs concurrently with the others: a fault is mostly waiting.
    pub(crate) at_once: bool,
    pub(crate) sabotage: bool,
    pub(crate) faults: Option<String>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) notes: PathBuf,
    short: bool,
    is_commit: bool,
}

/// The lock-set workload's name among the topologies.
const LOCKSET: &str = "lockset";

/// How long each part of a profile runs, in seconds.
const COMMIT: [(&str, u64); 6] =
    [("single", 45), ("sentinel", 6), ("cluster", 6), ("host", 6), ("several", 10), (LOCKSET, 5)];
const SHARD: [(&str, u64); 6] = [
    ("single", 300),
    ("sentinel", 40),
    ("cluster", 40),
    ("host", 25),
    ("several", 45),
    (LOCKSET, 25),
];

impl Options {
    pub(crate) fn parse(profile: &str, args: &[&str]) -> Result<Self, String> {
        let (mut seconds, mut seed, mut shard, mut only, mut out) = (None, None, 1, None, None);
        let (mut short, mut sabotage, mut faults, mut notes) = (false, false, None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match *arg {
                "--seconds" => seconds = Some(number(value()?)?),
                "--seed" => seed = Some(number(value()?)?),
                "--shard" => shard = one_of(value()?)?,
                "--only" => only = Some(value()?.split(',').collect::<Vec<_>>()),
                "--faults" => faults = Some(value()?.to_owned()),
                "--out" => out = Some(PathBuf::from(value()?)),
                "--notes" => notes = Some(PathBuf::from(value()?)),
                "--short" => short = true,
                "--sabotage" => sabotage = true,
                other => return Err(format!("what is {other}?")),
            }
        }
        let mut plan: Vec<(&str, u64)> = match profile {
            "topologies" => {
                let seconds = seconds.unwrap_or(if short { 8 } else { 60 });
                Topology::WITH_SERVERS.iter().map(|topology| (topology.name(), seconds)).collect()
            }
            "commit" => COMMIT.to_vec(),
            _ => SHARD.to_vec(),
        };
        if let Some(only) = only {
            let unknown = |name: &&&str| plan.iter().all(|(known, _)| known != *name);
            if let Some(name) = only.iter().find(unknown) {
                return Err(format!("no topology is named {name}"));
            }
            plan.retain(|(name, _)| only.contains(name));
        }
        let span = |(name, planned): (&str, u64)| Span {
            topology: Topology::ALL.into_iter().find(|topology| topology.name() == name),
            seconds: seconds.unwrap_or(planned),
        };
        let spans = plan.iter().copied().map(span).collect();
        // Chosen at random, so that no two runs are alike.
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0) % 1_000_000_000);
        let pace = if profile == "topologies" { Pace::Calm } else { Pace::Hard };
        let is_commit = profile == "commit";
        let at_once = is_commit && plan.len() > 1;
        // Shards of a seed must not play the same faults.
        let seed = if shard == 1 { seed } else { seed.wrapping_add(shard * 1_000_003) };
        let notes = notes.unwrap_or_else(notes::default_folder);
        Ok(Self { seed, spans, pace, at_once, sabotage, faults, out, notes, short, is_commit })
    }

    /// The minimum for a run of this many seconds.
    pub(crate) fn minimum(&self, topology: Topology, seconds: u64) -> Minimum {
        match self.pace {
            Pace::Calm => Minimum {
                acquisitions_a_second: 20,
                faults: if self.short { 2 } else { (seconds / 15).max(1) as usize },
                every_kind: !self.short && seconds >= 60,
                checked_order: if self.short { 50 } else { 5 * seconds },
            },
            Pace::Hard => Minimum {
                // A tenth of what a shared machine achieves, with and without optimization.
                acquisitions_a_second: if self.is_commit { 15 } else { 50 },
                faults: match topology {
                    Topology::Single => {
                        (seconds / if self.is_commit { 6 } else { 3 }).max(1) as usize
                    }
                    Topology::Several => (seconds / 10).max(1) as usize,
                    // Failovers take longer.
                    _ => (seconds / 20).max(1) as usize,
                },
                every_kind: false,
                // Nobody tells of a place while it waits for several.
                checked_order: if topology == Topology::Several { 0 } else { seconds },
            },
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// The K of K/N.
fn one_of(text: &str) -> Result<u64, String> {
    let (which, of) = text.split_once('/').ok_or_else(|| format!("{text} is not K/N"))?;
    let (which, of) = (number(which)?, number(of)?);
    if which == 0 || which > of { Err(format!("there is no shard {text}")) } else { Ok(which) }
}
