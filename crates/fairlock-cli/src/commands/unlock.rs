//! `fairlock unlock`: takes a lock away from those who hold it.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use fairlock::{Client, Kind as LockKind, LockStatus, OwnerId};

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::locks::java;
use crate::locks::look::{self, Name, Seen, Target};
use crate::locks::take_away::{self, Named, Taken};
use crate::locks::text::{FORCED, done, holders, in_line, owner};
use crate::settings::options::{self, Kind, STORE};
use crate::store::{self, Asked, Store};

const EXAMPLES: &str = "\
Examples:
  fairlock unlock --force nightly         asks first on a terminal
  fairlock unlock --force --yes nightly   does not ask
";

const HELP: &str = "\
Exit codes:
  0        the lock was held, and is taken away from all its holders
  1        nothing was freed: the lock was free, the answer was no, or it has another holder by now.
           Without a question, silent waiters at the head of a free lock's queue are removed anyway
  64       wrong usage or a wrong setting; the name is a key of another program
  69       the store cannot be reached, or there is none
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  77       access denied by the store, or no encrypted connection to a verified server

On a terminal:
  If stdin and stderr are terminals, the holders are shown, and the lock is taken only after a yes,
  and only from these holders. With --yes, or without a terminal, it is taken from any holder.";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The lock's name, any bytes.
    #[arg(value_name = "NAME")]
    name: OsString,

    /// Required: the holder is not asked, only notified that the lock is lost.
    #[arg(long)]
    force: bool,

    /// Do not ask on a terminal.
    #[arg(short, long)]
    yes: bool,

    /// Print only errors, and the question on a terminal.
    #[arg(short, long)]
    quiet: bool,

    /// Redisson in Java uses the same names: the keys of tokens never expire.
    ///
    /// See docs/redisson.md. Default: the configuration file, then the URL, then no.
    #[arg(long, help_heading = STORE, hide_short_help = true)]
    java_fleet: bool,

    /// The kind of lock.
    ///
    /// Default: fair, or rw or semaphore if the name is in use as one. A simple lock is freed only with --kind simple.
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
            "{name}: the holder may still be at work; `fairlock status` shows it, --force takes the lock away from it; \
             see fairlock unlock --help"
        )));
    }
    let store = Store::resolve(&args.store)?.looked_at().java_fleet(args.java_fleet)?;
    store.warn(args.quiet);
    let asked = store.asked(args.quiet);
    if !args.quiet {
        look::note_patterns([&args.name]);
    }
    let client = store.connect(args.quiet).await?;
    let kinds = look::kinds(args.kind.map(LockKind::from));
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let target = Target { name: Name::new(args.name.as_bytes()), kind: kinds.first().copied() };
    let done = match asks {
        true => ask_and_free(&client, target, &kinds, &asked).await,
        false => free(&client, target, &kinds).await,
    };
    store::shutdown(client).await;
    let (code, text) = match done? {
        Done::WasFree { removed: 0 } => {
            asked.found_nothing();
            (Code::NO, "was not locked".to_owned())
        }
        Done::WasFree { removed } => {
            (Code::NO, format!("was not locked; silent waiters removed from its queue: {removed}"))
        }
        Done::Freed(text) => (Code::OK, text),
        Done::Changed => (Code::NO, take_away::CHANGED.to_owned()),
        Done::LeftAlone => (Code::NO, "left alone".to_owned()),
    };
    if !args.quiet {
        output::print(&format!("{name}: {text}\n"))?;
    }
    Ok(code)
}

enum Done {
    /// Taken away; from whom, as a sentence.
    Freed(String),
    /// Nobody held it; so many silent waiters were removed.
    WasFree {
        removed: usize,
    },
    /// Somebody else got it while the question stood.
    Changed,
    LeftAlone,
}

/// Takes it from whoever holds it.
async fn free(client: &Client, target: Target, kinds: &[LockKind]) -> Result<Done, Failure> {
    let name = target.name.clone();
    // Only for the report, so a look that is denied does not matter.
    let seen = look::look_as(client, target.clone(), kinds, look::WAITERS_MAX).await.ok();
    let holders = look::force_as(client, name.as_bytes(), kinds).await?;
    if holders > 0 {
        return Ok(Done::Freed(freed(holders, seen.as_ref())));
    }
    let silent = seen.map_or_else(Vec::new, |seen| silent(&seen.status));
    if silent.is_empty() {
        return Ok(Done::WasFree { removed: 0 });
    }
    let after = look::look_as(client, target, kinds, look::WAITERS_MAX).await?.status;
    let is_there = |id: &OwnerId| after.queue.iter().any(|waiter| waiter.owner == *id);
    Ok(Done::WasFree { removed: silent.iter().filter(|id| !is_there(id)).count() })
}

/// Takes it from those that the question names.
async fn ask_and_free(
    client: &Client,
    target: Target,
    kinds: &[LockKind],
    asked: &Asked,
) -> Result<Done, Failure> {
    let seen = look::look_as(client, target.clone(), kinds, 1).await?;
    let Some(named) = Named::of(&seen) else { return Ok(Done::WasFree { removed: 0 }) };
    let store = asked.store().map_or_else(String::new, |store| format!("Store: {store}\n"));
    if !confirmed(&format!("{store}{}", question(&seen).unwrap_or_default()))? {
        return Ok(Done::LeftAlone);
    }
    let now = look::look_as(client, target, kinds, 0).await?;
    Ok(match named.take_away(client, &now).await? {
        Taken::Changed => Done::Changed,
        Taken::From(0) => Done::WasFree { removed: 0 },
        Taken::From(holders) => Done::Freed(freed(holders, Some(&now))),
    })
}

/// From so many holders, who were seen just before.
fn freed(holders: usize, seen: Option<&Seen>) -> String {
    let mut text = "unlocked".to_owned();
    if holders > 1 {
        text.push_str(&format!(", taken away from {holders} holders"));
    }
    let was = seen.and_then(|seen| in_line(seen.kind, &seen.status));
    text.extend(was.map(|was| format!("; it was {was}")));
    if let Some(note) = seen.and_then(|seen| works_on(&seen.status)) {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

/// What a holder that is not ours does when it loses the lock. Java's next unlock fails, or not even that.
fn works_on(status: &LockStatus) -> Option<&'static str> {
    let foreign = status.holders.iter().any(|holder| !holder.ours);
    foreign.then(|| match (status.holding, java::holds(status)) {
        (1, true) => "the holder is a Java client: it is not told and works on; stop that thread",
        (1, false) => "the holder is another program: it is not told and works on; stop it",
        (_, true) => {
            "Java clients are among them: they are not told and work on; stop those threads"
        }
        (_, false) => "other programs are among them: they are not told and work on; stop them",
    })
}

fn silent(status: &LockStatus) -> Vec<OwnerId> {
    let silent = status.queue.iter().filter(|waiter| waiter.alive == Some(false));
    silent.map(|waiter| waiter.owner.clone()).collect()
}

/// Who holds it, what happens to them, and who is next; `None` if the lock is free.
fn question(seen: &Seen) -> Option<String> {
    let (name, status) = (seen.name.printable(), &seen.status);
    let next = status.queue.first().map_or_else(
        || "Nobody waits for it".to_owned(),
        |first| {
            let silent =
                if first.alive == Some(false) { " (silent: it is passed over)" } else { "" };
            let more = match status.queue_len {
                1 => String::new(),
                len => format!(", then {} more", len - 1),
            };
            format!("Next: {}{silent}{more}", owner(status, &first.owner))
        },
    );
    if let Some(done) = done(status) {
        return Some(format!(
            "{name}: {done}\n{next}.\nForget that it is done, so that it may be started again now? [y/N] "
        ));
    }
    let holders = holders(seen.kind, status)?;
    let from = if status.holding > 1 { "all of them" } else { "it" };
    let forced = match works_on(status) {
        Some(note) => format!("{note} first."),
        None => FORCED.join("\n"),
    };
    Some(format!("{name}: {holders}\n{next}.\n{forced}\nTake the lock away from {from}? [y/N] "))
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
