//! `fairlock watch`: a line for each change of a lock.
//!
//! It looks again and again, as `fairlock top` does, so it changes nothing in the store and works with holders that tell
//! nobody of their changes. The JSON form (`HELP`) is a contract: fields are added, never renamed or removed.

mod change;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fairlock::{Client, Error, LockName};
use serde_json::Value;
use tokio::time::{self, MissedTickBehavior};

use crate::base::exit::{Code, Failure};
use crate::base::output;
use crate::base::utc;
use crate::locks::form;
use crate::locks::look::{self, Name, Seen, Target};
use crate::locks::text::in_line;
use crate::settings::options;
use crate::store::{self, Store};
use change::Change;

/// Most locks of one command. To watch more, `fairlock list` is cheaper.
const NAMES_MAX: usize = 1_000;

const EXAMPLES: &str = "\
Examples:
  fairlock watch nightly orders                 until Ctrl-C
  fairlock watch --json nightly | jq -r .event  for programs
";

const HELP: &str = "\
What is shown:
  The present state of each lock, then a line for each change: taken, handed over, released,
  expired, done (by a run with --once-per), other holders of a shared lock, a renewal that is
  overdue or came late, another number of waiters. A renewal in time and a re-entry are not
  changes. Of several changes between two polls, the result is shown. If the lease ended between
  them, but the lock may have been renewed and released, the line says `released or expired`. An
  error of the store ends the command after 30 s of retries. Each line begins with the time of the
  poll by the store's clock, in UTC.

Cost:
  Every --interval one call for each lock, and one for each of its clients, as in `fairlock top`.

With --json, one object on each line:
  schema, name, name_hex, kind, at_ms, held, done, holder, holders, holding, used, ttl_ms, token,
  queue_len
             as in `fairlock status --json`
  event      \"present\" (the first poll), \"taken\", \"handed_over\", \"released\", \"expired\" (the lock
             is free because the lease expired), \"done\", \"holders\", \"overdue\" (a renewal),
             \"renewed\" (after that) or \"queue\". If several things changed, the holders' event,
             with the present queue_len
  expired    for \"handed_over\", \"released\" and \"expired\": whether the lease of the hold before
             expired, or null if that is not known; otherwise null

Exit codes:
  0 if stdout has no reader any more; 64, 69, 70 and 77 as of `fairlock status`; 128 + n if signal n
  ended it";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// The locks' names, any bytes; at most 1000.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,

    /// Print JSON; `--help` describes its fields.
    #[arg(long)]
    json: bool,

    /// Time between two polls, 200ms to 1h.
    #[arg(long, value_name = "DURATION", value_parser = options::interval, default_value = "1s")]
    interval: Duration,

    #[command(flatten)]
    store: options::Store,
}

/// Watches until nobody reads any more. Signals keep their default action: nothing is held here.
pub(crate) async fn watch(args: Args) -> Result<Code, Failure> {
    if args.names.len() > NAMES_MAX {
        return Err(Failure::usage(format!(
            "at most {NAMES_MAX} locks can be watched by one command; `fairlock list` shows all"
        )));
    }
    let names: Vec<_> = args.names.iter().map(|name| Name::new(name.as_bytes())).collect();
    for name in &names {
        LockName::new(name.as_bytes()).map_err(Error::from)?;
    }
    // A watcher may be there before the first holder, and before the server.
    let store = Store::resolve(&args.store)?.silent().waited_for(None);
    store.warn(false);
    look::note_patterns(&args.names);
    let client = store.connect(false).await?;
    let done = tokio::select! {
        never = follow(&client, names, &args) => never,
        () = output::reader_is_gone() => Ok(Code::OK),
    };
    store::shutdown(client).await;
    done
}

async fn follow(client: &Client, names: Vec<Name>, args: &Args) -> Result<Code, Failure> {
    let mut targets: Vec<_> = names.into_iter().map(|name| Target { name, kind: None }).collect();
    // The last look and the one before it.
    let mut looks: Vec<[Option<Seen>; 2]> = targets.iter().map(|_| [None, None]).collect();
    let mut ticks = time::interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looked = look::look_all(client, &targets, 0).await;
        for ((target, looks), looked) in targets.iter_mut().zip(&mut looks).zip(looked) {
            let mut now = looked?;
            // A fair lock without waiters looks like another kind; it keeps the kind that is known.
            now.kind = now.kind.or(target.kind);
            target.kind = now.kind;
            let [before, earlier] = &*looks;
            if let Some(event) = Event::new(earlier.as_ref(), before.as_ref(), &now) {
                let line =
                    if args.json { json(&event, &now).to_string() } else { text(&event, &now) };
                if output::tell(format!("{line}\n"))?.is_break() {
                    return Ok(Code::OK);
                }
            }
            looks.swap(0, 1);
            looks[0] = Some(now);
        }
    }
}

/// What a line is about.
struct Event {
    change: Change,
    /// Whether the lease of the hold before ran out, where it was given up and that is known.
    expired: Option<bool>,
    /// Between two looks, somebody else held what is free now.
    between: bool,
}

impl Event {
    fn new(earlier: Option<&Seen>, before: Option<&Seen>, now: &Seen) -> Option<Self> {
        let Some(before) = before else {
            return Some(Self { change: Change::Present, expired: None, between: false });
        };
        let (before, now) = (&before.status, &now.status);
        let mut change = Change::between(before, now)?;
        let ended = matches!(change, Change::Released | Change::HandedOver);
        let earlier = earlier.map(|seen| &seen.status);
        let expired = if ended { change::ran_out(earlier, before, now) } else { None };
        if (change, expired) == (Change::Released, Some(true)) {
            change = Change::Expired;
        }
        let is_new = before.token.zip(now.token).is_some_and(|(before, now)| before != now);
        Some(Self { change, expired, between: is_new && now.holding == 0 })
    }
}

fn json(Event { change, expired, .. }: &Event, seen: &Seen) -> Value {
    let mut form = form::of(seen.name.as_os_str(), seen.kind, &seen.status);
    if let Value::Object(fields) = &mut form {
        // The waiters are not looked at.
        fields.remove("queue");
        fields.remove("limits");
        fields.insert("event".to_owned(), change.word().into());
        fields.insert("expired".to_owned(), (*expired).into());
    }
    form
}

fn text(Event { change, expired, between }: &Event, seen: &Seen) -> String {
    let status = &seen.status;
    let what = match change {
        // The state says it.
        Change::Present | Change::Done | Change::Overdue => "",
        Change::Taken => "taken: ",
        Change::Released if expired.is_none() => "released or expired: ",
        Change::Released => "released: ",
        Change::Expired => "expired: ",
        Change::HandedOver if *expired == Some(true) => "expired, handed over: ",
        Change::HandedOver => "handed over: ",
        Change::Renewed => "renewed: ",
        Change::Holders => "other holders: ",
        Change::Queue => "queue: ",
    };
    let state = in_line(seen.kind, status).unwrap_or_else(|| "free".to_owned());
    let mut text = format!("{} {}: {what}{state}", utc::rfc3339(status.at), seen.name.printable());
    if let Some(token) = status.token.filter(|_| status.holding > 0) {
        text.push_str(&format!(", token {token}"));
    }
    if *between {
        text.push_str(", after another hold");
    }
    if status.queue_len > 0 || *change == Change::Queue {
        text.push_str(&format!(", {} waiting", status.queue_len));
    }
    text
}
