//! The command line as typed, assembled from the options of each command.

use std::ffi::OsString;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::base::exit;
use crate::commands::run::args::Run;
use crate::commands::run::elect::Elect;
#[cfg(feature = "top")]
use crate::commands::top;
use crate::commands::{demo, fence_sql, latch, leader, list, names, status, unlock, wait, watch};
use crate::process::{guardian, terminal};

/// Locks for commands and services: first come, first served, with fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, before_help = examples(), after_help = MORE, after_long_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The common cases, shown before all options. The text before two spaces is also the example in error
/// messages.
fn examples() -> String {
    let mut examples = "\
Examples:
  fairlock run nightly -- ./backup.sh            wait for the lock, then run
  fairlock run --wait 0 nightly -- ./backup.sh   run only if the lock is free
  fairlock status nightly                        show its holder and its queue
  fairlock status                                show the store in use, and why
  fairlock list                                  list the locks in use
"
    .to_owned();
    if cfg!(feature = "top") {
        examples.push_str("  fairlock top                                   watch them live\n");
    }
    examples
}

/// The end of `-h`.
const MORE: &str = "\
See `fairlock COMMAND -h` for a command, `fairlock --help` for exit codes.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fairlock completions bash > ~/.local/share/bash-completion/completions/fairlock
  fairlock completions fish > ~/.config/fish/completions/fairlock.fish
  fairlock completions zsh > ~/.zfunc/_fairlock   with that directory in $fpath
";

const MAN_EXAMPLES: &str = "\
Examples:
  fairlock man | man -l -                   read it here
  fairlock man run > fairlock-run.1         save the page of one command
";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Wait for a lock, run a command while it is held, exit with the command's code.
    Run(Run),
    /// Run a command while this process leads an election; campaign again after a loss.
    Elect(Elect),
    /// Show who leads an election.
    Leader(leader::Args),
    /// Show who holds a lock and who waits for it; without a name, which store is used.
    Status(status::Args),
    /// List locks, their holders, and how many processes wait.
    List(list::Args),
    /// Print a line for each change of a lock.
    Watch(watch::Args),
    /// Show locks, their holders and their queues, live.
    #[cfg(feature = "top")]
    Top(top::Args),
    /// Take a lock away from its holder.
    Unlock(unlock::Args),
    /// Wait until a lock is free, without taking it.
    Wait(wait::Args),
    /// Set a latch, count it down, show it, delete it, or wait until it is open.
    Latch(latch::Args),
    /// Print the SQL script that installs a fence in a database.
    FenceSql(fence_sql::Args),
    /// Demonstrate what fairlock promises, on locks inside this process.
    #[command(after_help = demo::HELP)]
    Demo,
    /// Print completions for a shell.
    Completions(Completions),
    /// Print a manual page.
    Man(Man),
}

impl Command {
    /// The command, if it is a `run` without mistakes: reading the definitions of all other commands would take longer than
    /// the rest of its command line. Help and mistakes need all of them.
    pub(crate) fn run_alone(words: &[OsString]) -> Option<Self> {
        if words.first()? != "run" {
            return None;
        }
        let run = Run::augment_args(clap::Command::new("run"));
        let matches = run.try_get_matches_from(words).ok()?;
        Run::from_arg_matches(&matches).ok().map(Self::Run)
    }
}

/// What this program, or a completion script of its, asks of it in another process. Not a part of the command line:
/// completions and manual pages do not show it.
#[derive(Debug, Parser)]
#[command(name = "fairlock", disable_help_subcommand = true)]
pub(crate) enum Errand {
    /// Gives the terminal back: see `process/terminal.rs`.
    #[command(name = "__foreground")]
    Foreground(terminal::Args),
    /// Kills the command's group if fairlock dies: see `process/guardian.rs`.
    #[command(name = "__guardian")]
    Guardian(guardian::Args),
    /// Names of locks, for the completions of shells: see `commands/names.rs`.
    #[command(name = "__names")]
    Names(names::Args),
}

impl Errand {
    /// Whether the first argument names an errand.
    pub(crate) fn is_meant(words: &[OsString]) -> bool {
        words.first().is_some_and(|first| first.as_encoded_bytes().starts_with(b"__"))
    }
}

#[derive(Args, Debug)]
#[command(before_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
#[command(before_help = MAN_EXAMPLES)]
pub(crate) struct Man {
    /// The command that the page is about. Default: `fairlock` itself.
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}
