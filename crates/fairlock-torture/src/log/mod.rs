//! The inputs of the checker, from five sources that share one clock.
//!
//! - [`note`]: the clients', one line for each thing that a worker saw;
//! - [`effects`], read by [`tail`]: what the server carried out, in its order, from its append-only
//!   file;
//! - [`asked`]: how often the server was asked to run a script;
//! - the faults, reported by the campaign;
//! - the resource's, which is part of the clients' ([`note::Note::Wrote`]).
//!
//! All of them arrive as [`Input`].

pub(crate) mod asked;
pub(crate) mod effects;
pub(crate) mod note;
pub(crate) mod tail;

use crate::nemesis::Kind;
use effects::Command;
use note::Note;

/// One input of the checker.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A worker process saw something.
    Note { worker: usize, note: Note },
    /// A worker was killed at this time, or shortly after.
    Killed { worker: usize, at: u64 },
    /// All output of a worker process was read.
    Gone { worker: usize },
    /// A fault begins.
    Fault { id: usize, kind: Kind, from: u64 },
    /// A fault is over and repaired.
    Over { id: usize, until: u64 },
    /// A fault had been repaired at `healed`, and by `at` every client had had a turn that it asked
    /// for afterwards.
    Recovered { kind: Kind, healed: u64, at: u64 },
    /// The server ran this many scripts in this interval.
    Asked { from: u64, until: u64, scripts: u64 },
    /// Something did not run, for external reasons.
    Stalled { from: u64, until: u64 },
    /// A thread of the run got hardly any processor time.
    Starved { from: u64, until: u64 },
    /// The server carried out these commands atomically; read from its log at this time of the wall
    /// clock, in microseconds.
    Effects { read_us: i64, commands: Vec<Command> },
    /// The server was started without data.
    Emptied,
}
