//! The command line as typed: no file is read and no environment looked at here.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use fairlock::Replicas;

use crate::bench;
use crate::duration;
use crate::exit::{self, Code};
use crate::hold;
use crate::list;
use crate::status;
use crate::top;
use crate::unlock;

/// Locks for commands and services: first come, first served, with fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, before_help = EXAMPLES, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The common cases, shown before all options. What stands in front of two spaces is also what an
/// error message gives as its example.
const EXAMPLES: &str = "\
Examples:
  fairlock run nightly -- ./backup.sh            wait for the turn, then run
  fairlock run --wait 0 nightly -- ./backup.sh   only if nobody else is at it
  fairlock status nightly                        who holds it, who waits
  fairlock status                                which store is used, and why
  fairlock list                                  which locks are in use
  fairlock top                                   watch them
";

const RUN_EXAMPLES: &str = "\
Examples:
  fairlock run nightly -- ./backup.sh            wait for the turn, then run
  fairlock run --wait 0 nightly -- ./backup.sh   only if nobody else is at it: else exit code 75
  fairlock run --wait 5m --lease 1h nightly -- ./backup.sh
                                                 wait 5 minutes at most, run an hour at most
  fairlock run --once-per 50m report -- ./report.sh
                                                 once in 50 minutes, however many start it
  fairlock run nightly                           no command: hold the lock until a signal
";

const STATUS_EXAMPLES: &str = "\
Examples:
  fairlock status nightly                  who holds it, who waits
  fairlock status                          which store is used, and why
  fairlock status --json nightly           for programs
  fairlock status -q --exit-code nightly   exit code 0 when it is free, 1 when it is held
";

const UNLOCK_EXAMPLES: &str = "\
Examples:
  fairlock unlock --force nightly         asks first on a terminal
  fairlock unlock --force --yes nightly   does not ask
";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  fairlock completions bash > ~/.local/share/bash-completion/completions/fairlock
  fairlock completions fish > ~/.config/fish/completions/fairlock.fish
  fairlock completions zsh > ~/.zfunc/_fairlock   with that folder in $fpath
";

const MAN_EXAMPLES: &str = "\
Examples:
  fairlock man | man -l -                   read it
  fairlock man run > fairlock-run.1         the page of one command
";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Wait for the lock, run a command while it is held, exit with the command's code.
    Run(Run),
    /// Show who holds a lock and who waits for it; without a name, which store is used.
    Status(Status),
    /// Show which locks there are, who holds them, and how many wait.
    List(list::Args),
    /// Watch the locks, their holders and their queues.
    Top(top::Args),
    /// Take a lock away from whoever holds it.
    Unlock(Unlock),
    /// Measure what the store gives from this machine: it is used as fast as it can.
    Bench(bench::Args),
    /// Show, on locks inside this process, what fairlock promises. Needs no server.
    Demo,
    /// Print completions for a shell.
    Completions(Completions),
    /// Print a manual page.
    Man(Man),
}

/// What this program asks of itself in another process. Not a part of the command line: completions
/// and manual pages know nothing of it.
#[derive(Debug, Parser)]
#[command(name = "fairlock", disable_help_subcommand = true)]
pub(crate) enum Errand {
    /// The guarded command's first life: see `exec.rs`.
    #[command(name = "__exec")]
    Exec(Exec),
    /// Gives the terminal back: see `terminal.rs`.
    #[command(name = "__foreground")]
    Foreground(Group),
    /// Kills the command's group if fairlock dies: see `keeper.rs`.
    #[command(name = "__keep")]
    Keep(Keep),
}

impl Errand {
    /// Whether the first argument names one.
    pub(crate) fn is_meant() -> bool {
        let first = env::args_os().nth(1);
        first.is_some_and(|first| first.as_encoded_bytes().starts_with(b"__"))
    }
}

/// Where the locks are.
#[derive(Args, Debug, Default)]
pub(crate) struct Store {
    /// The store: sqlite:PATH, redis://, rediss:// (TLS), valkey://, unix: or memory:. Default: $FAIRLOCK_URL, then
    /// the configuration file, then a store for this host.
    // An OsString without a parser: clap never quotes it, whatever is wrong with it.
    #[arg(long, value_name = "URL", help_heading = STORE)]
    pub(crate) url: Option<OsString>,

    /// File with the password, one line. Default: $FAIRLOCK_PASSWORD, then the configuration file,
    /// then the one in the URL.
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    pub(crate) password_file: Option<PathBuf>,

    /// User at the Sentinels. Default: $FAIRLOCK_SENTINEL_USERNAME, then the configuration file, then the one in the
    /// URL.
    #[arg(long, value_name = "NAME", help_heading = STORE, hide_short_help = true)]
    pub(crate) sentinel_username: Option<OsString>,

    /// File with the password for the Sentinels. Default: $FAIRLOCK_SENTINEL_PASSWORD, then the configuration file,
    /// then the one in the URL.
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    pub(crate) sentinel_password_file: Option<PathBuf>,

    /// Refuse a store that excludes fewer than this.
    #[arg(long, value_enum, help_heading = STORE, hide_short_help = true)]
    pub(crate) scope: Option<Scope>,

    /// Configuration file instead of the user's and the system's. Default: $FAIRLOCK_CONFIG.
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
}

const STORE: &str = "Where the locks are";
const TROUBLE: &str = "When something goes wrong";

#[derive(Args, Debug)]
#[command(
    override_usage = "fairlock run [OPTIONS] <NAME> -- <COMMAND>...\n       fairlock run [OPTIONS] <NAME>",
    before_help = RUN_EXAMPLES,
    after_help = format!("{}\n\n{}", hold::HELP, exit::HELP),
)]
pub(crate) struct Run {
    /// The lock's name, any bytes.
    #[arg(
        value_name = "NAME",
        required_unless_present = "dashed",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) name: OsString,

    /// The lock's name, where it begins with `-`: --name=-x.
    #[arg(id = "dashed", long = "name", value_name = "NAME", conflicts_with = "name")]
    pub(crate) dashed: Option<OsString>,

    /// The command and its arguments. Without one the lock is held until a signal.
    #[arg(value_name = "COMMAND", last = true, value_hint = ValueHint::CommandName)]
    pub(crate) command: Vec<OsString>,

    /// How long to wait for one's turn, and for a store that does not answer, 30 s of it at most; 0 tries once.
    /// Default: for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// A fixed lease, never renewed: the command is ended before it runs out. Default: the lease
    /// is renewed for as long as the command runs.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) lease: Option<Duration>,

    /// Length of the lease that is renewed, every third of it: for so long a lock on a server stays held when this
    /// program and its host are gone, 300ms to a year. Default: the configuration file, then 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, conflicts_with = "lease")]
    pub(crate) ttl: Option<Duration>,

    /// At most one run in this time, counted from its start, wherever it was: a run that succeeds keeps the lock for the
    /// rest of it, one that fails gives it back. Never waits: a start within the time is a skip, with the code for
    /// a lock that is not acquired and without a word. 0: as often as one likes. Default: the configuration file.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "command")]
    pub(crate) once_per: Option<Duration>,

    /// What `fairlock status` shows others of this run, 1 to 128 bytes. Default: the configuration
    /// file, then the command's name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// How many replicas of the server must have the lock before the command runs, and for as long as
    /// it does: a number, all, any or none. Default: the configuration file, then the URL, then none.
    #[arg(long, value_name = "N", help_heading = STORE)]
    pub(crate) replicas: Option<Replicas>,

    /// Java clients with Redisson use the same names: their keys never get an end from this command. Default:
    /// the configuration file, then the URL, then not.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    pub(crate) java_fleet: bool,

    /// The kind of lock; all its users must name the same one.
    #[arg(long, value_enum, default_value_t = Kind::Fair)]
    pub(crate) kind: Kind,

    /// On stderr only errors: no word on how the wait goes, nor on a lock that was not acquired.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// On stderr a line whenever something changes while waiting, and when the lock is acquired. Without it: on
    /// a terminal one line that is rewritten, elsewhere one after 10 s, 20 s, 40 s and so on.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) store: Store,

    /// Exit code when the lock is not acquired in time; 0 also drops the message.
    #[arg(long, value_name = "N", default_value_t = Code::CONFLICT, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(crate) conflict_exit_code: Code,

    /// Exit code when the lock was lost or in doubt.
    #[arg(long, value_name = "N", default_value_t = Code::LOST, value_parser = exit_code(), help_heading = TROUBLE)]
    pub(crate) lost_exit_code: Code,

    /// Time between TERM and KILL when the command must end; at most a third of the lease.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s", requires = "command", help_heading = TROUBLE)]
    pub(crate) grace: Duration,

    /// What happens to the command when the lock is lost or in doubt.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Kill, requires = "command", help_heading = TROUBLE)]
    pub(crate) on_lost: OnLost,
}

impl Run {
    /// However the name was given, it is in `name`.
    pub(crate) fn named(mut self) -> Self {
        if let Some(name) = self.dashed.take() {
            self.name = name;
        }
        self
    }
}

#[derive(Args, Debug)]
#[command(before_help = STATUS_EXAMPLES, after_help = status::HELP)]
pub(crate) struct Status {
    /// The lock's name, any bytes. Without one: which store is used, and why.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<OsString>,

    /// One JSON object; its fields are described below.
    #[arg(long)]
    pub(crate) json: bool,

    /// The exit code tells: 0 free, 1 held.
    #[arg(long, requires = "name")]
    pub(crate) exit_code: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "json", requires = "exit_code")]
    pub(crate) quiet: bool,

    /// The kind of lock. Fair shows plain ones too; a simple one is kept elsewhere.
    #[arg(long, value_enum, default_value_t = Kind::Fair, requires = "name")]
    pub(crate) kind: Kind,

    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Args, Debug)]
#[command(before_help = UNLOCK_EXAMPLES, after_help = unlock::HELP)]
pub(crate) struct Unlock {
    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,

    /// Required: whoever holds the lock is not asked, only told that it is lost.
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask on a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Print nothing but errors, and the question on a terminal.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Java clients with Redisson use the same names: their keys never get an end from this command. Default:
    /// the configuration file, then the URL, then not.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    pub(crate) java_fleet: bool,

    /// The kind of lock, which decides where it is kept and who is woken.
    #[arg(long, value_enum, default_value_t = Kind::Fair)]
    pub(crate) kind: Kind,

    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Args, Debug)]
#[command(before_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct Completions {
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
#[command(before_help = MAN_EXAMPLES)]
pub(crate) struct Man {
    /// The command whose page it is. Default: the page of `fairlock` itself.
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    pub(crate) parent: i32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Keep {
    pub(crate) group: i32,
    pub(crate) owner: OsString,
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

impl Scope {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Fleet => "fleet",
        }
    }
}

fn exit_code() -> impl TypedValueParser<Value = Code> {
    clap::value_parser!(u8).map(Code::new)
}
