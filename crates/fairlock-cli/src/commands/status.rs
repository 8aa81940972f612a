//! `fairlock status`: who holds a lock, who waits for it, and in which store.
//!
//! The JSON form (`HELP`, `locks/form.rs`) is a contract: fields are added, never renamed or removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use fairlock::LockStatus;
use serde_json::json;

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::base::style::Style;
use crate::locks::form;
use crate::locks::text::{age, done, holder, who};
use crate::process::signal::Signals;
use crate::settings::options::{self, Kind};
use crate::settings::store_selection::StoreSelection;
use crate::store::{self, Store};

const EXAMPLES: &str = "\
Examples:
  fairlock status nightly                  who holds it, who waits
  fairlock status                          which store is used, and why
  fairlock status --json nightly           for programs
  fairlock status -q --exit-code nightly   exit code 0 when it is free, 1 when it is held
";

/// Exit codes and fields of the JSON form, for `--help`.
const HELP: &str = "\
Exit codes:
  0        the store answered, whether the lock is held or free; with --exit-code only if it is free
  1        with --exit-code: the lock is held
  64       wrong usage, or a wrong setting; a key of another program under the name
  69       the store cannot be reached, or there is none
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  77       access denied by the store, or no encrypted connection to a verified server

With --json, one object on one line:
  schema     1; fields may be added under the same number
  name       the lock's name, as text; bytes that are not UTF-8 are replaced
  name_hex   the name's bytes in hexadecimal when it is not UTF-8, else null
  at_ms      time of the look by the store's clock, in ms since 1970; every since_ms is by it too
  held       whether anybody holds the lock
  done       whether it is held for the rest of a time, by a run with --once-per that has
             succeeded; ttl_ms is the rest. False when no more is left than the length of the
             run's lease (--ttl): then it may as well be at work, or have been killed
  holder     null, or {\"owner\": ID, \"ours\": whether it is a client of fairlock, \"count\": HOLDS,
             \"since_ms\": when it got the lock, or null, \"client\": CLIENT or null}
  ttl_ms     milliseconds until the lock runs out unless renewed, or null
  token      fencing token of the present or the last hold, or null
  queue      the first 1000 waiters in order: [{\"place\": 1 for the next, \"owner\": ID, \"ours\": BOOL,
             \"alive\": true, false or null (unknown), \"since_ms\": when it came, or null,
             \"client\": CLIENT or null}]
  queue_len  number of waiters; larger than the list when that was cut short
  store      {\"url\": without a password, \"scope\": \"process\", \"host\" or \"fleet\": whom its locks
             exclude, \"source\": \"argument\", \"environment\", \"file\" or \"default\": who named it,
             \"file\": the configuration file that did, or null}
  Without a name: schema and store only.
  CLIENT is what a client says of itself, unchecked; null when it says nothing, and for all but the
  first 100 clients: {\"host\", \"user\", \"label\": text or null, \"pid\", \"version\", \"since_ms\"}";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_help = HELP)]
pub(crate) struct Args {
    /// The lock's name, any bytes. Without one: which store is used, and why.
    #[arg(value_name = "NAME")]
    name: Option<OsString>,

    /// One JSON object; its fields are described below.
    #[arg(long)]
    json: bool,

    /// The exit code tells: 0 free, 1 held.
    #[arg(long, requires = "name")]
    exit_code: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "json", requires = "exit_code")]
    quiet: bool,

    /// The kind of lock. Fair shows plain ones too; a simple one is kept elsewhere.
    #[arg(long, value_enum, default_value_t = Kind::Fair, requires = "name")]
    kind: Kind,

    #[command(flatten)]
    store: options::Store,
}

/// Queries the store once and prints the answer.
pub(crate) async fn status(args: Args) -> Result<Code, Failure> {
    // This client neither holds nor waits.
    let store = Store::resolve(&args.store)?.looked_at();
    store.warn(args.quiet);
    let Some(name) = &args.name else { return of_store(store.selection(), args.json) };
    let of_store = (store.selection().explain(), store.selection().form());
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    let status = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        status = ask(store, args.quiet, args.kind, name) => status?,
    };
    if args.json {
        let mut form = form::of(name, &status);
        form["store"] = of_store.1;
        output::print(&format!("{form}\n"))?;
    } else if !args.quiet {
        let text = human_form(name, &status, Style::of(&io::stdout()));
        output::print(&format!("{text}  in {}\n", of_store.0))?;
    }
    Ok(if args.exit_code && status.holder.is_some() { Code::NO } else { Code::OK })
}

/// Without a name: prints which store would be used, without connecting to it.
fn of_store(selection: &StoreSelection, json: bool) -> Result<Code, Failure> {
    if json {
        return output::print(&format!("{}\n", json!({ "schema": 1, "store": selection.form() })));
    }
    let mut text = format!("store: {}\n", selection.explain());
    if let Some(why) = selection.why_default() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {why}");
    }
    output::print(&text)
}

async fn ask(store: Store, quiet: bool, kind: Kind, name: &OsStr) -> Result<LockStatus, Failure> {
    let client = store.connect(quiet).await?;
    // The fair lock's view covers a plain lock: they share the hash, and the queue of a plain lock is
    // empty.
    let status = store::lock(&client, kind, name.as_bytes()).inspect().await;
    store::shutdown(client).await;
    Ok(status?)
}

fn human_form(name: &OsStr, status: &LockStatus, style: Style) -> String {
    let mut text = style.bold(&message::printable(name));
    text.push_str(": ");
    match done(status).or_else(|| holder(status)) {
        None => text.push_str(&style.green("free")),
        Some(line) => text.push_str(&line.replacen("held", &style.yellow("held"), 1)),
    }
    text.push('\n');
    if let Some(token) = &status.token {
        // For a free lock this is the token of the last holder.
        let which = if status.holder.is_some() { "token" } else { "last token" };
        let _ = writeln!(text, "  {which} {token}");
    }
    let dead = format!(" ({})\n", style.red("dead"));
    for waiter in &status.queue {
        let _ = write!(text, "  {:>4}. {}", waiter.place, waiter.owner);
        if let Some(age) = age(status, waiter.since) {
            let _ = write!(text, ", for {age}");
        }
        if let Some(client) = status.client(&waiter.owner) {
            let _ = write!(text, ", {}", who(client));
        }
        text.push_str(match waiter.alive {
            Some(true) => "\n",
            Some(false) => &dead,
            None => " (may be dead)\n",
        });
    }
    let unlisted = status.queue_len.saturating_sub(status.queue.len());
    if unlisted > 0 {
        let _ = writeln!(text, "  and {unlisted} more in the queue");
    }
    text
}
