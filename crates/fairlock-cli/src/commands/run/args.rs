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
  fairlock run nightly -- ./backup.sh            wait for the turn, then run
  fairlock run --wait 0 nightly -- ./backup.sh   only if nobody else is at it: else exit code 75
  fairlock run --wait 5m --max-run 1h nightly -- ./backup.sh
                                                 wait 5 minutes at most, run an hour at most
  fairlock run --once-per 50m report -- ./report.sh
                                                 once in 50 minutes, however many start it
  fairlock run --shared index -- ./search.sh     reads: beside others that do, while nobody writes
  fairlock run --kind rw index -- ./update.sh    writes: alone
  fairlock run --permits 3 fetch -- ./fetch.sh   at most 3 at a time
  fairlock run account-1 account-2 -- ./move.sh  both locks at once, or neither
  fairlock run nightly                           no command: hold the lock until a signal
";

/// The JSON form is a contract: fields are added, never renamed or removed.
const WITHOUT_COMMAND: &str = "\
Without a command:
  The lock is held until HUP, INT, QUIT, TERM, USR1 or USR2, then released; exit code 128 + n.
  When it is lost, the end comes at once, with the code for that; so does one of which nobody knows
  whether the lock was released. Stdin is not read: for a hold that ends with its writer, let `cat`
  be the command. When the lock is acquired, one line goes to stdout, a JSON object:
    schema     1; fields may be added under the same number
    event      \"acquired\"
    name       the lock's name, as text; bytes that are not UTF-8 are replaced
    name_hex   the name's bytes in hexadecimal when it is not UTF-8, else null
    owner      id of the hold, as in `fairlock status`
    token      fencing token, a number";

const TROUBLE: &str = "When something goes wrong";

#[derive(Args, Debug)]
#[command(
    override_usage = "fairlock run [OPTIONS] <NAME>... -- <COMMAND>...\n       fairlock run [OPTIONS] <NAME>",
    before_help = EXAMPLES,
    after_help = format!("{}\n\n{}", WITHOUT_COMMAND, exit::HELP),
)]
pub(crate) struct Run {
    /// The lock's name, any bytes. Several names, 32 at most: all locks at once, of the same kind and share, and no
    /// deadlock with others, whatever the order.
    #[arg(value_name = "NAME", required_unless_present = "dashed", num_args = 1..)]
    pub(super) names: Vec<OsString>,

    /// The names, as messages show them.
    #[arg(skip)]
    pub(super) name: OsString,

    /// The lock's name, where it begins with `-`: --name=-x.
    #[arg(id = "dashed", long = "name", value_name = "NAME", conflicts_with = "names")]
    pub(super) dashed: Option<OsString>,

    /// The command and its arguments. Without one the lock is held until a signal.
    #[arg(value_name = "COMMAND", last = true, value_hint = ValueHint::CommandName, group = "what")]
    pub(super) command: Vec<OsString>,

    /// How long to wait for one's turn, and for a store that does not answer, 30 s of it at most; 0 tries once.
    /// Default: for ever.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(super) wait: Option<Duration>,

    /// How long the command may run: then TERM, after --grace KILL, and exit code 124. The lock is renewed until the
    /// command has ended, and then released. Default: no bound.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive, conflicts_with = "lease", requires = "what")]
    pub(super) max_run: Option<Duration>,

    /// A fixed lease: the command is ended before this time is over, and the lock is never renewed, so its end counts as
    /// a loss. To bound the run of a lock that is renewed there is --max-run. Default: the lease of --ttl, renewed for
    /// as long as the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(super) lease: Option<Duration>,

    /// The lease: how long a lock on a server stays held when this program and its host are gone, 300ms to a year. It is
    /// renewed every third of it. Default: the configuration file, then 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, conflicts_with = "lease")]
    pub(super) ttl: Option<Duration>,

    /// At most one run in this time, counted from its start, wherever it was: a run that succeeds keeps the lock for the
    /// rest of it, one that fails gives it back. Never waits: a start within the time is a skip, with the code for
    /// a lock that is not acquired and without a word. Choose a time longer than --ttl. 0: as often as one likes. Default:
    /// the configuration file.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "what")]
    pub(super) once_per: Option<Duration>,

    /// What `fairlock status` shows others of this run, 1 to 128 bytes. Default: the configuration
    /// file, then the command's name.
    #[arg(long, value_name = "TEXT")]
    pub(super) label: Option<String>,

    /// How many replicas of the server must have the lock before the command runs, and for as long as
    /// it does: a number, all, any or none. Default: the configuration file, then the URL, then none.
    #[arg(long, value_name = "N", help_heading = STORE)]
    pub(super) replicas: Option<Replicas>,

    /// Java clients with Redisson use the same names: their keys never get an end from this command. Default:
    /// the configuration file, then the URL, then not.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    pub(super) java_fleet: bool,

    /// The kind of lock; all its users must name the same one. Default: fair; rw with --shared, semaphore with
    /// --permits.
    #[arg(long, value_enum)]
    pub(super) kind: Option<Kind>,

    /// Read: beside others that do, while nobody writes. Who writes says --kind rw instead, and runs alone.
    #[arg(short, long, conflicts_with_all = ["permits", "take"])]
    pub(super) shared: bool,

    /// A semaphore: at most so many permits in use, this run's included. All its users should name the same number.
    // A number below 0 is a wrong number, not an option.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) permits: Option<u32>,

    /// How many of the permits this run takes. Default: 1.
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) take: Option<u32>,

    /// On stderr only errors: no word on how the wait goes, nor on a lock that was not acquired.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// On stderr a line whenever something changes while waiting, when the lock is acquired, when it is in doubt, and for
    /// every warning about the server. Without it: on a terminal the warnings, the doubt, and one line that is rewritten,
    /// elsewhere no warnings and one line after 10 s, 20 s, 40 s and so on.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) flock: Flock,

    #[command(flatten)]
    pub(super) store: Store,

    /// Exit code when the lock is not acquired in time; 0 also drops the message.
    #[arg(short = 'E', long, value_name = "N", default_value_t = Code::CONFLICT, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(super) conflict_exit_code: Code,

    /// Exit code when the lock was lost or in doubt.
    #[arg(long, value_name = "N", default_value_t = Code::LOST, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(super) lost_exit_code: Code,

    /// Time between TERM and KILL when the command must end; where the lock is lost or in doubt at most a third of the
    /// lease, and of what a hand-over gives at first.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s", requires = "what", help_heading = TROUBLE)]
    pub(super) grace: Duration,

    /// What happens to the command when the lock is lost or in doubt.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Kill, requires = "what", help_heading = TROUBLE)]
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
    /// End it: TERM, then KILL.
    Kill,
    /// Leave it alone; the exit code still tells.
    Ignore,
}

fn exit_code() -> impl TypedValueParser<Value = Code> {
    clap::value_parser!(u8).map(Code::new)
}
