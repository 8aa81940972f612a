//! `fairlock status`: who holds a lock, who waits for it, and in which store.
//!
//! The JSON form is a contract (`HELP`): fields are added, never renamed or removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{ClientInfo, LockStatus};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::message;
use crate::once;
use crate::options::{self, Kind};
use crate::output;
use crate::signal::Signals;
use crate::store::{self, Store};
use crate::style::Style;

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
  64       wrong usage, or a wrong setting
  69       the store cannot be reached
  77       access denied by the store

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

/// Asks the store once and prints the answer.
pub(crate) async fn status(args: Args) -> Result<Code, Failure> {
    // It only looks: nobody will look for it.
    let store = Store::resolve(&args.store)?.looked_at();
    store.warn(args.quiet);
    let Some(name) = &args.name else { return of_store(store.choice(), args.json) };
    let of_store = (store.choice().explain(), store.choice().form());
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    let status = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        status = ask(store, args.quiet, args.kind, name) => status?,
    };
    if args.json {
        let mut form = json_form(name, &status);
        form["store"] = of_store.1;
        output::print(&format!("{form}\n"))?;
    } else if !args.quiet {
        let text = human_form(name, &status, Style::of(&io::stdout()));
        output::print(&format!("{text}  in {}\n", of_store.0))?;
    }
    Ok(if args.exit_code && status.holder.is_some() { Code::NO } else { Code::OK })
}

/// Without a name: which store would be asked. It is not.
fn of_store(choice: &Choice, json: bool) -> Result<Code, Failure> {
    if json {
        return output::print(&format!("{}\n", json!({ "schema": 1, "store": choice.form() })));
    }
    let mut text = format!("store: {}\n", choice.explain());
    if let Some(why) = choice.why_default() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {why}");
    }
    output::print(&text)
}

async fn ask(store: Store, quiet: bool, kind: Kind, name: &OsStr) -> Result<LockStatus, Failure> {
    let client = store.connect(quiet).await?;
    // The fair lock's view holds the plain one's: they share the hash, and a plain lock's queue is
    // empty.
    let status = store::lock(&client, kind, name.as_bytes()).inspect().await;
    store::shutdown(client).await;
    Ok(status?)
}

/// Who holds the lock, in one line and, if it says so itself, a second one; `None` if it is free.
pub(crate) fn holder(status: &LockStatus) -> Option<String> {
    let holder = status.holder.as_ref()?;
    let mut text = format!("held by {}", holder.owner);
    // Writing to a string cannot fail.
    if holder.count != 1 {
        let _ = write!(text, ", {} holds", holder.count);
    }
    if let Some(age) = age(status, holder.since) {
        let _ = write!(text, ", for {age}");
    }
    if let Some(ttl) = status.ttl {
        let _ = write!(text, ", runs out in {} unless renewed", duration::human(ttl));
    }
    if let Some(client) = status.client(&holder.owner) {
        let _ = write!(text, "\n  {}", who(client));
    }
    Some(text)
}

fn human_form(name: &OsStr, status: &LockStatus, style: Style) -> String {
    let mut text = style.bold(&message::printable(name));
    text.push_str(": ");
    match once::done(status).or_else(|| holder(status)) {
        None => text.push_str(&style.green("free")),
        Some(line) => text.push_str(&line.replacen("held", &style.yellow("held"), 1)),
    }
    text.push('\n');
    if let Some(token) = &status.token {
        // Of a free lock it is what the last holder had.
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

/// For how long, by the store's own clock.
pub(crate) fn age(status: &LockStatus, since: Option<SystemTime>) -> Option<String> {
    status.at.duration_since(since?).ok().map(duration::human)
}

/// `ann@web-1, pid 42, nightly`: the label comes last, it may be anything.
pub(crate) fn who(client: &ClientInfo) -> String {
    let user = client.user.as_deref().unwrap_or("?");
    let host = client.host.as_deref().unwrap_or("?");
    let mut text = format!("{user}@{host}, pid {}", client.pid);
    if let Some(label) = &client.label {
        let _ = write!(text, ", {label}");
    }
    text
}

pub(crate) fn json_form(name: &OsStr, status: &LockStatus) -> Value {
    let client = |owner| status.client(owner).map(client_form);
    json!({
        "schema": 1,
        "name": name.to_string_lossy(),
        "name_hex": name.to_str().is_none().then(|| hex(name.as_bytes())),
        "at_ms": epoch_ms(status.at),
        "held": status.holder.is_some(),
        "done": status.is_done(),
        "holder": status.holder.as_ref().map(|holder| json!({
            "owner": holder.owner.to_string(),
            "ours": holder.ours,
            "count": holder.count,
            "since_ms": holder.since.map(epoch_ms),
            "client": client(&holder.owner),
        })),
        "ttl_ms": status.ttl.map(millis),
        // Below 2^53, so that every JSON reader keeps it exact.
        "token": status.token.as_ref().map(|token| token.get()),
        "queue": status.queue.iter().map(|waiter| json!({
            "place": waiter.place,
            "owner": waiter.owner.to_string(),
            "ours": waiter.ours,
            "alive": waiter.alive,
            "since_ms": waiter.since.map(epoch_ms),
            "client": client(&waiter.owner),
        })).collect::<Vec<_>>(),
        "queue_len": status.queue_len,
    })
}

fn client_form(client: &ClientInfo) -> Value {
    json!({
        "host": client.host,
        "pid": client.pid,
        "user": client.user,
        "label": client.label,
        "version": client.version,
        "since_ms": epoch_ms(client.since),
    })
}

fn epoch_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes as text that keeps all of them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
