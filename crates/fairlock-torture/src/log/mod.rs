//! What a run leaves behind for the checker, from four sides that share one clock.
//!
//! - [`note`]: the clients', a line for each thing that a worker saw;
//! - [`effects`], read by [`tail`]: the server's own, from its append-only file: the truth of what was
//!   carried out, in its order;
//! - [`asked`]: how often it was asked for a script;
//! - the faults, told by the campaign;
//! - the resource's, which is part of the clients' ([`note::Note::Wrote`]).
//!
//! [`Input`] is what all of them come as.

pub(crate) mod asked;
pub(crate) mod effects;
pub(crate) mod note;
pub(crate) mod tail;

use crate::nemesis::Kind;
use effects::Command;
use note::Note;

/// One thing that the checker hears.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A worker process saw something.
    Note { worker: usize, note: Note },
    /// It was killed at this time, or a moment later.
    Killed { worker: usize, at: u64 },
    /// All that a process told was read.
    Gone { worker: usize },
    /// A fault begins.
    Fault { id: usize, kind: Kind, from: u64 },
    /// It is over, and put right.
    Over { id: usize, until: u64 },
    /// A fault had been put right at `healed`, and at `at` every client had had a turn that it asked for since.
    Recovered { kind: Kind, healed: u64, at: u64 },
    /// The server was asked for so many scripts in this time.
    Asked { from: u64, until: u64, scripts: u64 },
    /// Something did not run, through no fault of ours.
    Stalled { from: u64, until: u64 },
    /// A thread of the run had hardly any processor.
    Starved { from: u64, until: u64 },
    /// The server carried out these, all at once; read from its log at this time of the wall clock, in
    /// microseconds.
    Effects { read_us: i64, commands: Vec<Command> },
    /// The server was started with nothing.
    Emptied,
}
