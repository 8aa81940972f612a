//! The command line as typed: no file is read and no environment looked at here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;
use crate::exit::{self, Code};
use crate::list;
use crate::status;

/// Distributed locks on Redis or Valkey: first come, first served, with fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Wait for the lock, run a command while it is held, exit with the command's code.
    Run(Run),
    /// Show who holds a lock and who waits for it.
    Status(Status),
    /// Show which locks there are, who holds them, and how many wait.
    List(list::Args),
    /// Take a lock away from whoever holds it.
    Unlock(Unlock),
    /// Show, on locks inside this process, what fairlock promises. Needs no server.
    Demo,
    /// The guarded command's first life: see `exec.rs`.
    #[command(name = "__exec", hide = true)]
    Exec(Exec),
    /// Gives the terminal back: see `terminal.rs`.
    #[command(name = "__foreground", hide = true)]
    Foreground(Group),
    /// Kills the command's group if fairlock dies: see `keeper.rs`.
    #[command(name = "__keep", hide = true)]
    Keep(Group),
}

/// Where the locks are.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The lock server: redis://, valkey://, unix: or memory:. Default: $FAIRLOCK_URL.
    // An OsString without a parser: clap never quotes it, whatever is wrong with it.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<OsString>,

    /// File with the password, one line. Default: $FAIRLOCK_PASSWORD, then the one in the URL.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Refuse a store that excludes fewer than this.
    #[arg(long, value_enum)]
    pub(crate) scope: Option<Scope>,
}

#[derive(Args, Debug)]
#[command(after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) store: Store,

    /// How long to wait for one's turn; 0 tries once. Default: for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// A fixed lease, never renewed: the command is ended before it runs out. Default: the lease
    /// is renewed for as long as the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) lease: Option<Duration>,

    /// The kind of lock; all its users must name the same one.
    #[arg(long, value_enum, default_value_t = Kind::Fair)]
    pub(crate) kind: Kind,

    /// Time between TERM and KILL when the command must end; at most a third of the lease.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    pub(crate) grace: Duration,

    /// What `fairlock status` shows others of this run, 1 to 128 bytes. Default: the command's name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Exit code when the lock is not acquired in time; 0 also drops the message.
    #[arg(long, value_name = "N", default_value_t = Code::CONFLICT, value_parser = exit_code())]
    pub(crate) conflict_exit_code: Code,

    /// Exit code when the lock was lost or in doubt.
    #[arg(long, value_name = "N", default_value_t = Code::LOST, value_parser = exit_code())]
    pub(crate) lost_exit_code: Code,

    /// What happens to the command when the lock is lost or in doubt.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Kill)]
    pub(crate) on_lost: OnLost,

    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,

    /// The command and its arguments.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(after_help = status::JSON_HELP, max_term_width = 100)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) store: Store,

    /// One JSON object; its fields are described below.
    #[arg(long)]
    pub(crate) json: bool,

    /// The kind of lock. Fair shows plain ones too; a simple one is kept elsewhere.
    #[arg(long, value_enum, default_value_t = Kind::Fair)]
    pub(crate) kind: Kind,

    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Unlock {
    #[command(flatten)]
    pub(crate) store: Store,

    /// Required: whoever holds the lock is not asked, only told that it is lost.
    #[arg(long)]
    pub(crate) force: bool,

    /// The kind of lock, which decides where it is kept and who is woken.
    #[arg(long, value_enum, default_value_t = Kind::Fair)]
    pub(crate) kind: Kind,

    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    pub(crate) parent: i32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Group {
    pub(crate) group: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// First come, first served.
    Fair,
    /// Reentrant, without a queue.
    Plain,
    /// A string key, as redis-py and many small clients lock.
    Simple,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// All processes of this host.
    Host,
    /// All hosts that use the same server.
    Fleet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// End it: TERM, then KILL.
    Kill,
    /// Leave it alone; the exit code still tells.
    Ignore,
}

fn exit_code() -> impl TypedValueParser<Value = Code> {
    clap::value_parser!(u8).map(Code::new)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
