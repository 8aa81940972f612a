//! `fairlock elect`: a run that campaigns, announces a value while its command runs, and campaigns again after a loss.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use clap::ValueHint;
use fairlock::{Client, Election, Error};

use super::args::{OnLost, Run};
use super::flock::Flock;
use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::locks::held::Held;
use crate::settings::options::Store;

/// The text before two spaces is also the example in error messages.
const EXAMPLES: &str = "\
Examples:
  fairlock elect scheduler -- ./scheduler                             while this process leads
  fairlock elect scheduler --value http://$HOST:8080 -- ./scheduler   `fairlock leader` shows this
";

const HELP: &str = "\
What it does:
  Of all processes that name the same election, one leads, in order of arrival, and its command
  runs. When it loses the term, it ends the command (TERM, then KILL) and campaigns again, at the
  end of the queue; with --once it exits with 76. When the command ends by itself, it resigns and
  exits with the command's code. The election is the fair lock of its name: `fairlock status NAME`
  shows the leader and the candidates.

Exit codes:
  (any)    the command's own code; 128 + n if signal n ended the command or the campaign
  64       wrong usage or a wrong setting; the name is in use as another kind of lock, or by
           another program
  69       the store cannot be reached, or there is none; while waiting, after the store was away
           for 30 s: let the unit start it again (Restart=always)
  70       internal error; an answer or a file that is not fairlock's
  76       the term was lost (with --once), or it is not known whether it was given back
  77       access denied by the store, or no encrypted connection to a verified server
  126/127  the command cannot be executed / was not found

Durations:
  500ms, 10s, 5m, 1m30s, 1.5h, 1d, 0";

#[derive(clap::Args, Debug)]
#[command(
    override_usage = "fairlock elect [OPTIONS] <NAME> -- <COMMAND>...",
    before_help = EXAMPLES,
    after_long_help = HELP,
)]
pub(crate) struct Elect {
    /// The election's name, any bytes.
    #[arg(value_name = "NAME")]
    name: OsString,

    /// The command and its arguments. $FAIRLOCK_TOKEN is the term's number.
    #[arg(value_name = "COMMAND", last = true, required = true, value_hint = ValueHint::CommandName)]
    command: Vec<OsString>,

    /// What `fairlock leader` shows, such as where the command listens.
    ///
    /// Up to 1024 bytes. Default: empty.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: OsString,

    /// Exit when the term is lost, instead of campaigning again.
    #[arg(long)]
    once: bool,

    /// Length of the renewed lease, from 300ms to a year.
    ///
    /// How long no other candidate leads after this program or its host has died. Renewed after each third. Default: the
    /// configuration file, then 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl)]
    ttl: Option<Duration>,

    /// What `fairlock status` shows about this candidate, 1 to 128 bytes.
    ///
    /// Default: the configuration file, then the command's name.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Time between TERM and KILL when the command is ended.
    ///
    /// At most a third of the lease.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    grace: Duration,

    /// Print only errors.
    #[arg(short, long)]
    quiet: bool,

    /// Print each change of the wait and of the term, and server warnings.
    ///
    /// One line each, on stderr.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    #[command(flatten)]
    store: Store,
}

/// What a run announces while it leads.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    value: OsString,
    once: bool,
}

impl Elect {
    /// The run of a candidate.
    pub(crate) fn run(self) -> Result<Run, Failure> {
        let bytes = self.value.len();
        if bytes > Election::VALUE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{}: a --value of {bytes} bytes cannot be announced; the most are {}: announce where to find the rest",
                message::printable(&self.name),
                Election::VALUE_BYTES_MAX
            )));
        }
        Ok(Run {
            names: vec![self.name.clone()],
            name: self.name,
            dashed: None,
            command: self.command,
            wait: None,
            max_run: None,
            lease: None,
            ttl: self.ttl,
            // A configured one is for runs.
            once_per: Some(Duration::ZERO),
            label: self.label,
            replicas: None,
            java_fleet: false,
            kind: None,
            shared: false,
            permits: None,
            take: None,
            quiet: self.quiet,
            verbose: self.verbose,
            flock: Flock::default(),
            store: self.store,
            conflict_exit_code: Code::CONFLICT,
            lost_exit_code: Code::LOST,
            grace: self.grace,
            on_lost: OnLost::Kill,
            elect: Some(Candidacy { value: self.value, once: self.once }),
        })
    }
}

/// Whether the run campaigns again after its term was lost.
pub(super) fn goes_on(args: &Run) -> bool {
    args.elect.as_ref().is_some_and(|elect| !elect.once)
}

/// Announces the candidate's value, if the run is one of a candidate.
pub(super) async fn begin(client: &Client, args: &Run, guard: Held) -> Result<Held, Error> {
    match (&args.elect, guard) {
        (Some(elect), Held::One(guard)) => {
            let election = client.election(args.name.as_bytes());
            election.lead(guard, elect.value.as_bytes()).await.map(Held::Leads)
        }
        (_, guard) => Ok(guard),
    }
}
