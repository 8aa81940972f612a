//! The options of `fairlock run`.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum, ValueHint};
use fairlock::Replicas;

use super::elect::Candidacy;
use super::flock::Flock;
use crate::base::duration;
use crate::base::exit::{self, Code};
use crate::base::message;
use crate::settings::options::{Kind, STORE, Store};

/// The text before two spaces is also the example in error messages.
pub(super) const EXAMPLES: &str = "\
Examples:
  fairlock run nightly -- ./backup.sh                 wait for the lock, then run
  fairlock run --wait 0 nightly -- ./backup.sh        only if the lock is free, else exit code 75
  fairlock run --once-per 50m report -- ./report.sh   at most one run in 50 minutes, on all hosts
  fairlock run --permits 3 fetch -- ./fetch.sh        at most 3 runs at a time
  fairlock run nightly                                hold the lock until a signal
";

/// Sections of `--help`. The JSON form is a contract: fields are added, never renamed or removed.
const MORE: &str = "\
More examples:
  fairlock run --wait 5m --max-run 1h nightly -- ./backup.sh
                                                 wait up to 5 minutes, run up to an hour
  fairlock run --shared index -- ./search.sh     read, together with other readers
  fairlock run --kind rw index -- ./update.sh    write, alone
  fairlock run account-1 account-2 -- ./move.sh  hold both locks, or neither

Without a command:
  The lock is held until HUP, INT, QUIT, TERM, USR1 or USR2, then released, with exit code 128 + n.
  If the lock is lost, the program ends at once. Stdin is not read: for a hold that ends with its
  writer, let `cat` be the command. Once the lock is acquired, stdout gets one line, a JSON object:
    schema     1; fields may be added under the same number
    event      \"acquired\"
    name       the lock's name, as text; bytes that are not UTF-8 are replaced
    name_hex   the name's bytes in hexadecimal if it is not UTF-8, else null
    owner      id of the hold, as in `fairlock status`
    token      fencing token, a number";

const TROUBLE: &str = "When something goes wrong";

#[derive(Args, Debug)]
#[command(
    override_usage = "fairlock run [OPTIONS] <NAME>... -- <COMMAND>...\n       fairlock run [OPTIONS] <NAME>",
    before_help = EXAMPLES,
    after_long_help = format!("{}\n\n{}", MORE, exit::HELP),
)]
pub(crate) struct Run {
    /// The lock's name, any bytes. With several names, all these locks at once.
    ///
    /// At most 32, all of one kind and share. Runs that name the same locks in another order do not deadlock.
    #[arg(value_name = "NAME", required_unless_present = "dashed", num_args = 1..)]
    pub(super) names: Vec<OsString>,

    /// The names, as messages show them.
    #[arg(skip)]
    pub(super) name: OsString,

    /// A lock's name that begins with `-`: --name=-x.
    #[arg(
        id = "dashed",
        long = "name",
        value_name = "NAME",
        conflicts_with = "names",
        hide_short_help = true
    )]
    pub(super) dashed: Option<OsString>,

    /// The command and its arguments. Without one, the lock is held until a signal.
    #[arg(value_name = "COMMAND", last = true, value_hint = ValueHint::CommandName, group = "what")]
    pub(super) command: Vec<OsString>,

    /// Longest wait for the lock; 0 tries once. Default: no limit.
    ///
    /// If the store does not answer, at most 30 s.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(super) wait: Option<Duration>,

    /// Longest run of the command; then it is ended, with exit code 124.
    ///
    /// The command gets TERM, and KILL after --grace. The lock is renewed until the command has ended. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive, conflicts_with = "lease", requires = "what")]
    pub(super) max_run: Option<Duration>,

    /// A fixed lease, never renewed; the command is ended before it expires.
    ///
    /// This counts as a loss; --max-run limits a command under a renewed lock. Default: the lease of --ttl, renewed while
    /// the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive, hide_short_help = true)]
    pub(super) lease: Option<Duration>,

    /// Length of the renewed lease, from 300ms to a year.
    ///
    /// How long a server keeps the lock after this program or its host has died. Renewed after each third. Default: the
    /// configuration file, then 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, conflicts_with = "lease")]
    pub(super) ttl: Option<Duration>,

    /// At most one successful run in this time, on all hosts; never waits.
    ///
    /// A run that succeeds keeps the lock for the rest of the time, counted from its start; one that fails releases it.
    /// Within the time, further runs exit with --conflict-exit-code and print nothing. Choose a time longer than --ttl.
    /// 0: no limit. Default: the configuration file.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "what")]
    pub(super) once_per: Option<Duration>,

    /// What `fairlock status` shows about this run, 1 to 128 bytes.
    ///
    /// Default: the configuration file, then the command's name.
    #[arg(long, value_name = "TEXT")]
    pub(super) label: Option<String>,

    /// How many replicas must have the lock while the command runs: a number, all, any or none.
    ///
    /// See docs/configuration.md. Default: the configuration file, then the URL, then none.
    #[arg(long, value_name = "N", help_heading = STORE, hide_short_help = true)]
    pub(super) replicas: Option<Replicas>,

    /// Redisson in Java uses the same names: the keys of tokens never expire.
    ///
    /// See docs/redisson.md. Default: the configuration file, then the URL, then no.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    pub(super) java_fleet: bool,

    /// The kind of lock.
    ///
    /// All users of the name must give the same kind. Default: fair; with --shared rw, with --permits semaphore.
    #[arg(long, value_enum)]
    pub(super) kind: Option<Kind>,

    /// Read: together with other readers, while no writer has the lock.
    ///
    /// A writer gives --kind rw instead, and runs alone.
    #[arg(short, long, conflicts_with_all = ["permits", "take"])]
    pub(super) shared: bool,

    /// A semaphore: at most N permits in use, including this run's.
    ///
    /// All users of the name should give the same number.
    // A number below 0 is a wrong number, not an option.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) permits: Option<u32>,

    /// How many of the permits this run takes. Default: 1.
    #[arg(long, value_name = "K", hide_short_help = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) take: Option<u32>,

    /// Print only errors.
    ///
    /// Nothing about the wait, nor that the lock was not acquired.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Print each change of the wait and of the lock, and server warnings.
    ///
    /// One line each, on stderr. Without this option, a terminal shows server warnings, any doubt about the lock, and the
    /// current state of the wait on one line. If stderr is not a terminal, there are no warnings, and a line about the wait
    /// after 10 s, 20 s, 40 s and so on.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) flock: Flock,

    #[command(flatten)]
    pub(super) store: Store,

    /// Exit code if the lock is not acquired in time.
    ///
    /// With 0, nothing is printed either.
    #[arg(short = 'E', long, value_name = "N", default_value_t = Code::CONFLICT, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(super) conflict_exit_code: Code,

    /// Exit code if the lock was lost or in doubt.
    #[arg(long, value_name = "N", hide_short_help = true, default_value_t = Code::LOST, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(super) lost_exit_code: Code,

    /// Time between TERM and KILL when the command is ended.
    ///
    /// If the lock is lost or in doubt, at most a third of the lease.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s", requires = "what", help_heading = TROUBLE, hide_short_help = true)]
    pub(super) grace: Duration,

    /// What to do with the command if the lock is lost: kill or ignore.
    ///
    /// Also if it is in doubt. Default: kill.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Kill, hide_default_value = true, hide_possible_values = true, requires = "what", help_heading = TROUBLE)]
    pub(super) on_lost: OnLost,

    /// Of `fairlock elect`.
    #[arg(skip)]
    pub(super) elect: Option<Candidacy>,
}

impl Run {
    /// Moves the name into `names`, whichever way it was given, and what was said as to flock(1) to its place.
    pub(crate) fn named(mut self) -> Self {
        self.wait = self.wait.or_else(|| self.flock.wait());
        self.command = self.flock.command().unwrap_or(self.command);
        self.names.extend(self.dashed.clone());
        self.name = self.names.join(OsStr::new(", "));
        self
    }

    /// `b is `, before what is said of one of several locks; `None` if there is one.
    pub(super) fn one_of_several(&self, at: usize) -> Option<String> {
        let name = self.names.get(at).filter(|_| self.names.len() > 1)?;
        Some(format!("{} is ", message::printable(name)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// End it with TERM, then KILL.
    Kill,
    /// Leave it alone; the exit code still reports the loss.
    Ignore,
}

fn exit_code() -> impl TypedValueParser<Value = Code> {
    clap::value_parser!(u8).map(Code::new)
}
