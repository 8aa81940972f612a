//! `fairlock list`: which locks there are, who holds them, how many wait.
//!
//! The JSON form is a contract (`HELP`): fields are added, never renamed or removed.

mod names;
mod table;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fairlock::{Client, Error, ErrorKind, Kind, LockEntry, Locks};
use serde_json::{Value, json};
use tokio::time;

use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::locks::form;
use crate::locks::look::{self, Seen, Target};
use crate::process::signal::Signals;
use crate::settings::options;
use crate::store::{self, Store};
use names::Names;
use table::Table;

/// Waiters of a lock whose limits are looked at, where it is a semaphore.
const WAITERS_LOOKED_AT: usize = 64;

/// A search that is over sooner needs no word on its pace.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  fairlock list                    the locks in use
  fairlock list --waiting          the locks with waiters
  fairlock list nightly orders     these locks, free or not
  fairlock list 'job:*'            the locks in use whose name begins with job:
  fairlock list --json | jq -r 'select(.ttl_ms == null) | .name'
";

const HELP: &str = "\
On a server:
  The server's keys are scanned, at most 1000 a step and --rate a second: 100000 keys a second take
  about 3 % of one core of the server. This finds locks that fairlock granted in the last day, and
  locks with a queue. It misses locks that only Redisson's RLock, RReadWriteLock, RFairLock without
  waiters, or other programs' simple locks have used; name them to see them. Latches are not listed:
  `fairlock latch NAME --show`. If clients wait for a name as another kind than it is used for,
  stderr says so; for a lock that is named, only while it is free, as in `fairlock status`.

In the table:
  KIND is - for a fair or a plain lock without waiters: they look the same. LEFT is the time until
  the hold expires unless it is renewed, `never` without a TTL. HOLDER ends with `renewal overdue
  by` and a time if a holder of fairlock should have renewed the lock.

With --json, one object on one line for each lock, as it is found:
  schema, name, name_hex, kind, at_ms, held, done, holder, holders, holding, used, limits, ttl_ms,
  token, queue_len
             as in `fairlock status --json`, limits of 64 holders and 64 waiters at most; the queue
             itself is not listed
  denied     null, or the store's message if it denies access to this lock. What it would tell is
             null then, held and queue_len only if the scan does not know them either

Exit codes:
  0 whatever was found; 64, 69, 70 and 77 as of `fairlock status`; 128 + n if signal n ended it";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// Show these locks, free or not; 'PREFIX*' shows those in use. Default: all in use.
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,

    /// Print JSON; `--help` describes its fields.
    #[arg(long)]
    json: bool,

    /// Only locks that are held.
    #[arg(long, conflicts_with_all = ["waiting", "all"])]
    held: bool,

    /// Only locks with waiters. Waiters of plain and simple locks are not known.
    #[arg(long, conflicts_with = "all")]
    waiting: bool,

    /// Free locks too, while the store remembers them.
    #[arg(long)]
    all: bool,

    /// Only locks of this kind.
    ///
    /// Also locks whose kind looks the same. With names, the kind of these locks.
    #[arg(long, value_enum)]
    kind: Option<options::Kind>,

    /// Scan at most N keys of a server per second.
    ///
    /// Up to 1000000.
    #[arg(long, value_name = "N", default_value_t = Locks::KEYS_PER_SECOND, value_parser = options::rate())]
    rate: u32,

    #[command(flatten)]
    store: options::Store,
}

/// Prints the locks that were asked for.
pub(crate) async fn list(args: Args) -> Result<Code, Failure> {
    let names = Names::parse(&args.names)?;
    let store = Store::resolve(&args.store)?.looked_at();
    store.warn(false);
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    tokio::select! {
        biased;
        signal = signals.recv() => Err(Failure::signal(signal)),
        done = run(store, args, names) => done,
    }
}

async fn run(store: Store, args: Args, names: Names) -> Result<Code, Failure> {
    let asked = store.asked(false);
    let client = store.connect(false).await?;
    let mut printer = Printer::new(args.json);
    let done = show_all(&client, &args, &names, &mut printer).await;
    store::shutdown(client).await;
    // Rows that were found are printed even after an error.
    let ended = printer.end(done.is_ok());
    done?;
    let _ = ended?;
    if !printer.in_use {
        asked.found_nothing();
    }
    Ok(printer.code)
}

/// Prints the locks that are named in full, and then those that are found.
async fn show_all(
    client: &Client,
    args: &Args,
    names: &Names,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let is_search = names.is_search();
    if !is_search {
        printer.table.keep_order();
    }
    let filter = Filter::new(args);
    if named(client, names, &filter.free_too(), printer).await?.is_continue() && is_search {
        walk(client, args.rate, names, &filter, printer).await?;
    }
    Ok(())
}

/// Prints the locks named on the command line, in their order.
async fn named(
    client: &Client,
    names: &Names,
    filter: &Filter,
    printer: &mut Printer,
) -> Result<ControlFlow<()>, Failure> {
    let kind = filter.kind;
    for names in names.full.chunks(look::AT_ONCE_MAX) {
        let targets: Vec<_> =
            names.iter().map(|name| Target { name: name.clone(), kind }).collect();
        if show(client, &targets, &[], filter, printer).await?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Prints the locks that the store knows and that were asked for.
async fn walk(
    client: &Client,
    rate: u32,
    names: &Names,
    filter: &Filter,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let locks = client.locks().keys_per_second(rate);
    let pace = locks.pace().filter(|_| io::stderr().is_terminal());
    let noticed = async {
        time::sleep(NOTICE_AFTER).await;
        if let Some(rate) = pace {
            let what = format!("looking at {rate} keys of the server a second at most (--rate)");
            message::report(&what);
        }
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        biased;
        done = search(client, locks, names, filter, printer) => done,
        never = noticed => match never {},
    }
}

async fn search(
    client: &Client,
    mut locks: Locks,
    names: &Names,
    filter: &Filter,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut denied = 0;
    while let Some(page) = locks.next_page().await? {
        denied +=
            locks.denied().iter().filter(|name| names.are_searched_for(name.as_bytes())).count();
        let is_wanted = |entry: &LockEntry| {
            names.are_searched_for(entry.name.as_bytes()) && filter.may_pass(entry)
        };
        let wanted: Vec<_> = page.into_iter().filter(is_wanted).collect();
        for entries in wanted.chunks(look::AT_ONCE_MAX) {
            let targets: Vec<_> = entries.iter().map(Target::from).collect();
            if show(client, &targets, entries, filter, printer).await?.is_break() {
                return Ok(());
            }
        }
    }
    // Some of them may be held.
    match denied {
        0 => {}
        1 => message::report("1 name is not shown: no right to read it"),
        _ => message::report(&format!("{denied} names are not shown: no right to read them")),
    }
    Ok(())
}

/// `found`: what the search knows of each target, if they come from a search.
async fn show(
    client: &Client,
    targets: &[Target],
    found: &[LockEntry],
    filter: &Filter,
    printer: &mut Printer,
) -> Result<ControlFlow<()>, Failure> {
    let all = look::look_all(client, targets, WAITERS_LOOKED_AT).await;
    for (at, (target, looked)) in targets.iter().zip(all).enumerate() {
        if let Some(entry) = found.get(at).filter(|entry| !entry.beside.is_empty()) {
            let held = entry.kind.filter(|_| entry.held);
            let also = entry.kind.filter(|_| !entry.held);
            let lines: Vec<_> = also.into_iter().chain(entry.beside.iter().copied()).collect();
            message::report(&look::kinds_meet(&target.name, held, &lines));
        }
        let mut looked = looked;
        if let Ok(seen) = &mut looked
            && found.is_empty()
            && filter.kind.is_none()
        {
            look::look_at_lines(client, seen, WAITERS_LOOKED_AT).await;
        }
        let flow = match looked {
            Ok(seen) if filter.passes(&seen) => printer.lock(seen)?,
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => printer.trouble(target, found.get(at), error)?,
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Which locks are shown.
#[derive(Clone, Copy, Debug)]
struct Filter {
    held: bool,
    waiting: bool,
    free: bool,
    kind: Option<Kind>,
}

impl Filter {
    fn new(args: &Args) -> Self {
        let kind = args.kind.map(Kind::from);
        Self { held: args.held, waiting: args.waiting, free: args.all, kind }
    }

    /// For locks that are named.
    fn free_too(self) -> Self {
        Self { free: true, ..self }
    }

    /// Filters before the look at the lock itself, so that most locks need none.
    fn may_pass(&self, entry: &LockEntry) -> bool {
        self.is_shown(entry.held, entry.waiting) && self.is_of_kind(entry.kind, entry.held)
    }

    fn passes(&self, seen: &Seen) -> bool {
        let held = seen.status.holder.is_some();
        self.is_shown(held, seen.status.queue_len) && self.is_of_kind(seen.kind, held)
    }

    fn is_shown(&self, held: bool, waiting: usize) -> bool {
        match (self.held, self.waiting) {
            (true, _) => held,
            (_, true) => waiting > 0,
            _ => self.free || held || waiting > 0,
        }
    }

    fn is_of_kind(&self, kind: Option<Kind>, held: bool) -> bool {
        match (self.kind, kind) {
            (None, _) => true,
            (Some(wanted), Some(kind)) => wanted == kind,
            // The other kinds are known while they are held; a free lock may be of any kind.
            (Some(wanted), None) => matches!(wanted, Kind::Fair | Kind::Plain) || !held,
        }
    }
}

/// Prints the rows.
#[derive(Debug)]
struct Printer {
    json: bool,
    table: Table,
    any: bool,
    /// Whether any of them is held or waited for.
    in_use: bool,
    code: Code,
}

impl Printer {
    fn new(json: bool) -> Self {
        Self { json, table: Table::default(), any: false, in_use: false, code: Code::OK }
    }

    /// Returns `Break` if nobody reads any more.
    fn lock(&mut self, seen: Seen) -> Result<ControlFlow<()>, Failure> {
        self.any = true;
        self.in_use |= seen.status.holder.is_some() || seen.status.queue_len > 0;
        if self.json {
            return output::tell(format!("{}\n", json_form(&seen)));
        }
        output::tell(self.table.add(seen))
    }

    /// Reports a problem with one lock. It does not hide the others, but shows in the exit code.
    fn trouble(
        &mut self,
        target: &Target,
        found: Option<&LockEntry>,
        error: Error,
    ) -> Result<ControlFlow<()>, Failure> {
        let kind = error.kind();
        // Kinds that concern this lock alone.
        let of_this =
            [ErrorKind::WrongType, ErrorKind::Misuse, ErrorKind::Protocol, ErrorKind::Denied];
        if !of_this.contains(&kind) {
            return Err(error.into());
        }
        match error.lock() {
            Some(_) => message::report(&error.to_string()),
            None => message::report(&format!("{}: {error}", target.name.printable())),
        }
        if self.code == Code::OK {
            self.code = Code::of(kind);
        }
        if kind != ErrorKind::Denied {
            return Ok(ControlFlow::Continue(()));
        }
        // The lock exists and may be held; a list without it would say that it is free.
        self.any = true;
        self.in_use = true;
        match self.json {
            true => output::tell(format!("{}\n", denied_form(target, found, &error))),
            false => output::tell(self.table.add_denied(target, found)),
        }
    }

    fn end(&mut self, all: bool) -> Result<ControlFlow<()>, Failure> {
        if all && !self.any && io::stderr().is_terminal() {
            message::report("no locks to show");
        }
        output::tell(self.table.rest())
    }
}

fn json_form(seen: &Seen) -> Value {
    let mut form = form::of(seen.name.as_os_str(), seen.kind, &seen.status);
    if let Value::Object(fields) = &mut form {
        fields.remove("queue");
        fields.insert("denied".to_owned(), Value::Null);
    }
    form
}

/// The form of a lock that the store denies to look at.
fn denied_form(target: &Target, found: Option<&LockEntry>, error: &Error) -> Value {
    let name = target.name.as_os_str();
    json!({
        "schema": 1,
        "name": name.to_string_lossy(),
        "name_hex": name.to_str().is_none().then(|| form::hex(name.as_bytes())),
        "at_ms": null,
        "held": found.map(|entry| entry.held),
        "done": null,
        "holder": null,
        "holders": null,
        "holding": null,
        "used": null,
        "limits": null,
        "ttl_ms": null,
        "token": null,
        "queue_len": found.map(|entry| entry.waiting),
        "kind": target.kind.map(|kind| look::kind_word(Some(kind))),
        "denied": error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        let filter = |held, waiting, free| Filter { held, waiting, free, kind: None };
        for (filter, shown) in [
            // Free; held; held and waited for; waited for.
            (filter(false, false, false), [false, true, true, true]),
            (filter(false, false, true), [true, true, true, true]),
            (filter(true, false, false), [false, true, true, false]),
            (filter(false, true, true), [false, false, true, true]),
        ] {
            let states = [(false, 0), (true, 0), (true, 2), (false, 1)];
            let seen = states.map(|(held, waiting)| filter.is_shown(held, waiting));
            assert_eq!(seen, shown, "{filter:?}");
        }
        let of = |kind| Filter { held: false, waiting: false, free: true, kind: Some(kind) };
        for (wanted, kind, held, passes) in [
            (Kind::Fair, Some(Kind::Fair), true, true),
            (Kind::Fair, None, true, true),
            (Kind::Plain, None, true, true),
            (Kind::Plain, Some(Kind::Fair), true, false),
            (Kind::Simple, None, true, false),
            (Kind::Simple, None, false, true),
            (Kind::Simple, Some(Kind::Simple), true, true),
            (Kind::ReadWrite, Some(Kind::ReadWrite), true, true),
            (Kind::ReadWrite, Some(Kind::Semaphore), true, false),
            (Kind::Semaphore, None, true, false),
            (Kind::Semaphore, None, false, true),
            (Kind::Fair, Some(Kind::Simple), true, false),
        ] {
            assert_eq!(of(wanted).is_of_kind(kind, held), passes, "{wanted:?} {kind:?} {held}");
        }
    }
}
