//! `fairlock unlock`: takes a lock away from whoever holds it.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use fairlock::{Client, Kind as LockKind, LockStatus, OwnerId};

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::base::usage;
use crate::locks::java;
use crate::locks::look::{self, Name, Seen, Target};
use crate::locks::text::holders;
use crate::settings::options::{self, Kind, STORE};
use crate::store::{self, Store};

const EXAMPLES: &str = "\
Examples:
  fairlock unlock --force nightly         asks first on a terminal
  fairlock unlock --force --yes nightly   does not ask
";

const HELP: &str = "\
Exit codes:
  0        the lock was held, and is taken away from all who held it
  1        nothing was freed: nobody held it, or the question was answered with no. Silent waiters
           at the head of the queue of a free lock are removed nevertheless
  64       wrong usage, or a wrong setting; a key of another program under the name
  69       the store cannot be reached, or there is none
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  77       access denied by the store, or no encrypted connection to a verified server

On a terminal:
  When stdin and stderr are terminals, the holders are shown and one is asked, unless --yes is
  given.";

/// How many waiters are looked at.
const WAITERS_MAX: usize = 1_000;

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_help = HELP)]
pub(crate) struct Args {
    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    name: OsString,

    /// Required: whoever holds the lock is not asked, only told that it is lost. A Java client is not even told, and
    /// works on: stop it first.
    #[arg(long)]
    force: bool,

    /// Do not ask on a terminal.
    #[arg(short, long)]
    yes: bool,

    /// Print nothing but errors, and the question on a terminal.
    #[arg(short, long)]
    quiet: bool,

    /// Java clients with Redisson use the same names: their keys never get an end from this command. Default:
    /// the configuration file, then the URL, then not.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    java_fleet: bool,

    /// The kind of lock, which decides where it is kept and who is woken. Default: fair, or rw or semaphore if the name
    /// is in use so.
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    #[command(flatten)]
    store: options::Store,
}

/// Frees the lock. Signals keep their default action: the request is sent completely or not at all.
pub(crate) async fn unlock(args: Args) -> Result<Code, Failure> {
    let name = message::printable(&args.name);
    if !args.force {
        return Err(Failure::usage(format!(
            "{name}: the holder may still be at work; say --force to take the lock away; {}",
            usage::advice(Some("unlock"), EXAMPLES)
        )));
    }
    let store = Store::resolve(&args.store)?.looked_at().java_fleet(args.java_fleet)?;
    store.warn(args.quiet);
    let client = store.connect(args.quiet).await?;
    let kinds = look::kinds(args.kind.map(LockKind::from));
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let target = Target { name: Name::new(args.name.as_bytes()), kind: kinds.first().copied() };
    let done = free(&client, target, &kinds, asks).await;
    store::shutdown(client).await;
    let (code, text) = match done? {
        Done::Freed { holders, java } => {
            let from = match holders {
                1 => String::new(),
                _ => format!(", taken away from {holders} holders"),
            };
            let note = if java { format!("; {}", works_on(holders)) } else { String::new() };
            (Code::OK, format!("unlocked{from}{note}"))
        }
        Done::WasFree { removed: 0 } => (Code::NO, "was not locked".to_owned()),
        Done::WasFree { removed } => {
            (Code::NO, format!("was not locked; silent waiters removed from its queue: {removed}"))
        }
        Done::LeftAlone => (Code::NO, "left alone".to_owned()),
    };
    if !args.quiet {
        output::print(&format!("{name}: {text}\n"))?;
    }
    Ok(code)
}

enum Done {
    /// Taken away from so many holders, of which some are Java clients.
    Freed {
        holders: usize,
        java: bool,
    },
    /// Nobody held it; so many silent waiters were removed.
    WasFree {
        removed: usize,
    },
    LeftAlone,
}

async fn free(
    client: &Client,
    target: Target,
    kinds: &[LockKind],
    asks: bool,
) -> Result<Done, Failure> {
    let name = target.name.clone();
    // Also when nobody is asked: the answer to the force tells neither who held the lock nor who waits.
    let before = match look::look_as(client, target.clone(), kinds, WAITERS_MAX).await {
        Ok(seen) => Some(seen),
        Err(error) if asks => return Err(error.into()),
        Err(_) => None,
    };
    let java = before.as_ref().is_some_and(|seen| java::holds(&seen.status));
    if asks && let Some(Seen { kind, status, .. }) = &before {
        // Whoever gets it from now on was not shown.
        let Some(holders) = holders(*kind, status) else { return Ok(Done::WasFree { removed: 0 }) };
        let from = if status.holding > 1 { "all of them" } else { "it" };
        let works_on = works_on(status.holding);
        let note = if java { format!("\n{works_on} first") } else { String::new() };
        let name = name.printable();
        let question = format!("{name}: {holders}{note}\nTake the lock away from {from}? [y/N] ");
        if !confirmed(&question)? {
            return Ok(Done::LeftAlone);
        }
    }
    let holders = look::force_as(client, name.as_bytes(), kinds).await?;
    if holders > 0 {
        return Ok(Done::Freed { holders, java });
    }
    let silent = before.map_or_else(Vec::new, |seen| silent(&seen.status));
    let removed = if silent.is_empty() {
        0
    } else {
        let after = look::look_as(client, target, kinds, WAITERS_MAX).await?.status;
        let is_there = |id: &OwnerId| after.queue.iter().any(|waiter| waiter.owner == *id);
        silent.iter().filter(|id| !is_there(id)).count()
    };
    Ok(Done::WasFree { removed })
}

/// What a Java client does that loses the lock: its next unlock fails, or not even that.
fn works_on(holders: usize) -> &'static str {
    match holders {
        1 => "the holder is a Java client: it is not told and works on; stop that thread",
        _ => "Java clients are among them: they are not told and work on; stop those threads",
    }
}

fn silent(status: &LockStatus) -> Vec<OwnerId> {
    let silent = status.queue.iter().filter(|waiter| waiter.alive == Some(false));
    silent.map(|waiter| waiter.owner.clone()).collect()
}

/// Asks on the terminal; only an explicit yes counts.
fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut answer = String::new();
    let asked = io::stderr().write_all(question.as_bytes());
    asked
        .and_then(|()| io::stdin().read_line(&mut answer))
        .map_err(|error| Failure::new(Code::INTERNAL, format!("the terminal: {error}")))?;
    Ok(["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes)))
}
