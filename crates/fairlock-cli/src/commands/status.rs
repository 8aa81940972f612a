//! `fairlock status`: who holds a lock, who waits for it, and in which store.
//!
//! The JSON form (`HELP`, `locks/form.rs`) is a contract: fields are added, never renamed or removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use fairlock::Client;
use serde_json::json;

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::base::style::Style;
use crate::locks::form;
use crate::locks::java;
use crate::locks::look::{self, Name, Seen, Target};
use crate::locks::text::{age, holders, is_token_of_holders, limits, minted, want, who};
use crate::process::signal::Signals;
use crate::settings::options::{self, Kind};
use crate::settings::store_selection::StoreSelection;
use crate::store::{self, Store};

const EXAMPLES: &str = "\
Examples:
  fairlock status nightly                  show the holder and the queue
  fairlock status                          show the store in use, and why
  fairlock status --json nightly           for programs
  fairlock status -q --exit-code nightly   exit code 0 if the lock is free, 1 if it is held
";

/// Exit codes and fields of the JSON form, for `--help`.
const HELP: &str = "\
Exit codes:
  0        the store answered; with --exit-code, the lock is free
  1        with --exit-code: the lock is held
  64       wrong usage or a wrong setting; the name is a key of another program
  69       the store cannot be reached, or there is none
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  77       access denied by the store, or no encrypted connection to a verified server

With --json, one object on one line:
  schema     1; fields may be added under the same number
  name       the lock's name, as text; bytes that are not UTF-8 are replaced
  name_hex   the name's bytes in hexadecimal if it is not UTF-8, else null
  at_ms      when the store answered, by its clock, in ms since 1970; since_ms uses the same clock
  kind       \"fair\", \"plain\", \"simple\", \"rw\" or \"semaphore\", or null: a fair lock without waiters
             looks like a plain one, and a free lock like any
  held       whether the lock is held
  done       whether a run with --once-per has succeeded and keeps the lock for ttl_ms more. False
             once ttl_ms is at most the run's --ttl: the run may also be at work, or killed
  holder     null, or {\"owner\": ID, \"ours\": whether it is a client of fairlock, \"count\": HOLDS,
             \"since_ms\": when it got the lock (of a reader: since when the lock is read), or null,
             \"client\": CLIENT or null,
             \"ttl_ms\": until its hold expires unless it is renewed, or null without a TTL,
             \"overdue_ms\": how long its renewal is overdue at least, or null, SHARE}; if there
             are several, the first
  holders    all holders, each like holder, unordered: at most 1000 of a read-write lock or a
             semaphore
  holding    number of holders
  used       permits of a semaphore that are in use, else 0
  limits     the smallest and the largest limit of a semaphore that the listed holders and
             waiters gave, [NUMBER, NUMBER], or null; they should be equal
  ttl_ms     milliseconds until holder's hold expires unless it is renewed, or null if the lock is
             free or has no TTL
  token      fencing token of the present or the last hold, or null. Of Java's locks only
             RFencedLock has tokens; with another Java holder it is an earlier hold's token
  queue      the first 1000 waiters in order: [{\"place\": 1 for the next, \"owner\": ID, \"ours\": BOOL,
             \"alive\": true, false or null (unknown), \"since_ms\": when it came, or null,
             \"client\": CLIENT or null, SHARE}]
  queue_len  number of all waiters
  value      what the holder announces, as text, as in `fairlock leader`; null if nothing
  value_hex  the value's bytes in hexadecimal if it is not UTF-8, else null
  store      {\"url\": without a password, \"scope\": \"process\", \"host\" or \"fleet\": what its locks
             exclude, \"source\": \"argument\", \"environment\", \"file\" or \"default\": where it was
             named, \"file\": the configuration file that names it, or null}
  Without a name: schema and store only.
  SHARE is what an owner has or wants: \"share\": \"whole\" (of a read-write lock: to write), \"read\" or
  \"permits\", \"permits\": how many, or null, \"limit\": how many may be in use, or null
  CLIENT is what a client publishes about itself, unchecked; null if it publishes nothing, and after
  the first 100 clients: {\"host\", \"user\", \"label\": text or null, \"pid\", \"version\", \"since_ms\",
  \"lease_ms\": the lease of all its holds, which it renews every third of that, or null}";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The lock's name, any bytes. Without one, show which store is used, and why.
    #[arg(value_name = "NAME")]
    name: Option<OsString>,

    /// Print JSON; `--help` describes its fields.
    #[arg(long)]
    json: bool,

    /// Exit with 0 if the lock is free, with 1 if it is held.
    #[arg(long, requires = "name")]
    exit_code: bool,

    /// Print only errors.
    #[arg(short, long, conflicts_with = "json", requires = "exit_code")]
    quiet: bool,

    /// The kind of lock.
    ///
    /// Default: fair, which shows plain ones too, or rw or semaphore if the name is in use as one. A simple lock is found
    /// only as --kind simple.
    #[arg(long, value_enum, requires = "name")]
    kind: Option<Kind>,

    #[command(flatten)]
    store: options::Store,
}

/// Queries the store once and prints the answer.
pub(crate) async fn status(args: Args) -> Result<Code, Failure> {
    // This client neither holds nor waits.
    let store = Store::resolve(&args.store)?.looked_at();
    store.warn(args.quiet);
    let Some(name) = &args.name else { return of_store(store.selection(), args.json) };
    if !args.quiet {
        look::note_patterns([name]);
    }
    let of_store = (store.selection().explain(), store.selection().form());
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    let seen = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        seen = ask(store, args.quiet, args.kind, name) => seen?,
    };
    let (seen, value) = seen;
    let is_held = seen.status.holder.is_some();
    if args.json {
        let mut form = form::of(name, seen.kind, &seen.status);
        add_value(&mut form, value.as_deref());
        form["store"] = of_store.1;
        output::print(&format!("{form}\n"))?;
    } else if !args.quiet {
        let is_server = of_store.1["scope"] == "fleet";
        let text = human_form(&seen, value, is_server, Style::of(&io::stdout()));
        output::print(&format!("{text}  in {}\n", of_store.0))?;
    }
    Ok(if args.exit_code && is_held { Code::NO } else { Code::OK })
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

/// What is seen, and what the holder announces.
async fn ask(
    store: Store,
    quiet: bool,
    kind: Option<Kind>,
    name: &OsStr,
) -> Result<(Seen, Option<Vec<u8>>), Failure> {
    let client = store.connect(quiet).await?;
    let kind = kind.map(fairlock::Kind::from);
    let target = Target { name: Name::new(name.as_bytes()), kind };
    let mut seen = look::look_as(&client, target, &look::kinds(kind), look::WAITERS_MAX).await;
    if kind.is_none()
        && let Ok(seen) = &mut seen
    {
        look::look_at_lines(&client, seen, look::WAITERS_MAX).await;
    }
    let value = match &seen {
        Ok(seen) => announced(&client, seen).await,
        Err(_) => None,
    };
    store::shutdown(client).await;
    Ok((seen?, value))
}

/// What the holder announces, if anything. A look that is denied shows nothing.
async fn announced(client: &Client, Seen { name, kind, status }: &Seen) -> Option<Vec<u8>> {
    let holder = status.holder.as_ref().filter(|holder| holder.ours)?;
    if !matches!(kind, None | Some(fairlock::Kind::Fair)) {
        return None;
    }
    let leader = client.election(name.as_bytes()).leader().await.ok()??;
    leader.value.filter(|value| leader.owner == holder.owner && !value.is_empty())
}

/// Adds `value` and `value_hex`.
fn add_value(form: &mut serde_json::Value, value: Option<&[u8]>) {
    form["value"] = value.map(String::from_utf8_lossy).into();
    let odd = value.filter(|value| std::str::from_utf8(value).is_err());
    form["value_hex"] = odd.map(form::hex).into();
}

/// `is_server`: a server remembers the last token of a name for a day, a file for some minutes at least.
fn human_form(
    Seen { name, kind, status }: &Seen,
    value: Option<Vec<u8>>,
    is_server: bool,
    style: Style,
) -> String {
    let mut text = style.bold(&name.printable());
    text.push_str(": ");
    match holders(*kind, status) {
        None => text.push_str(&style.green("free")),
        Some(line) => text.push_str(&line.replacen("held", &style.yellow("held"), 1)),
    }
    text.push('\n');
    if let Some(value) = value {
        let _ = writeln!(text, "  announces {}", message::printable(&OsString::from_vec(value)));
    }
    if status.holder.is_none() && status.queue_len == 0 && status.token.is_none() {
        text.push_str(match is_server {
            true => "  not used by fairlock in the last day\n",
            false => "  not used lately\n",
        });
    }
    if let Some(token) = &status.token {
        // Else that of the last holder.
        let _ = match minted(status) {
            _ if is_token_of_holders(status) => writeln!(text, "  token {token}"),
            Some(when) => writeln!(text, "  last token {token}, of {when}"),
            None => writeln!(text, "  last token {token}"),
        };
    }
    if let Some(limits) = limits(status) {
        let _ =
            writeln!(text, "  {}: the larger one bounds the permits in use", style.yellow(&limits));
    }
    let silent = format!(" ({})\n", style.red("silent"));
    for waiter in &status.queue {
        let _ = write!(text, "  {:>4}. {}", waiter.place, waiter.owner);
        if let Some(want) = want(*kind, waiter.share) {
            let _ = write!(text, ", {want}");
        }
        if let Some(age) = age(status, waiter.since) {
            let _ = write!(text, ", for {age}");
        }
        if let Some(client) = status.client(&waiter.owner) {
            let _ = write!(text, ", {}", who(client));
        }
        match waiter.alive {
            Some(true) => text.push('\n'),
            Some(false) => text.push_str(&silent),
            None => {
                let unknown = java::not_known_whether_alive(&waiter.owner.to_string());
                let _ = writeln!(text, " ({unknown})");
            }
        }
    }
    let unlisted = status.queue_len.saturating_sub(status.queue.len());
    if unlisted > 0 {
        let _ = writeln!(text, "  and {unlisted} more in the queue");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Every field of the JSON form is described, and those of shares say what they should.
    #[tokio::test]
    async fn the_json_form_of_shares() -> Result<(), fairlock::Error> {
        let client = Client::connect("memory:").await?;
        let pool = client.semaphore("x", 3);
        let permit = pool.acquire_many(2).await?;
        let waits = tokio::spawn({
            let pool = client.semaphore("x", 2);
            async move { pool.acquire().await }
        });
        let status = loop {
            let status = pool.inspect().await?;
            if status.queue_len == 1 {
                break status;
            }
            tokio::task::yield_now().await;
        };
        let form = form::of(OsStr::new("x"), Some(fairlock::Kind::Semaphore), &status);
        let fields = |form: &Value| form.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let parts = [&form, &form["holder"], &form["holders"][0], &form["queue"][0]];
        for field in parts.into_iter().flat_map(fields) {
            let described = [format!("\n  {field} "), format!("\"{field}\":")];
            assert!(described.iter().any(|text| HELP.contains(text)), "{field}");
        }
        assert_eq!((&form["kind"], &form["held"]), (&"semaphore".into(), &true.into()));
        assert_eq!((&form["holding"], &form["used"]), (&1.into(), &2.into()));
        assert_eq!(form["limits"], json!([2, 3]));
        assert_eq!(form["holder"], form["holders"][0]);
        for (part, permits, limit) in [("holders", 2, 3), ("queue", 1, 2)] {
            let share = &form[part][0];
            assert_eq!(share["share"], "permits");
            assert_eq!((&share["permits"], &share["limit"]), (&permits.into(), &limit.into()));
        }
        waits.abort();
        let _ = permit.release().await?;
        let reading = client.rw_lock("y").read().await?;
        let status = client.rw_lock("y").inspect().await?;
        let form = form::of(OsStr::new("y"), Some(fairlock::Kind::ReadWrite), &status);
        let share = &form["holder"];
        assert_eq!((&form["kind"], &share["share"]), (&"rw".into(), &"read".into()));
        assert_eq!((&share["permits"], &form["limits"]), (&Value::Null, &Value::Null));
        let _ = reading.release().await?;
        Ok(())
    }
}
