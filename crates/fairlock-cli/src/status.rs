//! `fairlock status`: who holds a lock, who waits for it.
//!
//! The JSON form is a contract (`JSON_HELP`): fields are added, never renamed or removed.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use fairlock::LockStatus;
use serde_json::{Value, json};

use crate::args;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::message;
use crate::output;
use crate::signal::Signals;
use crate::store::{self, Store};

/// The fields of the JSON form, for `--help`.
pub(crate) const JSON_HELP: &str = "\
With --json, one object on one line:
  schema     1; fields may be added under the same number
  name       the lock's name, as text; bytes that are not UTF-8 are replaced
  name_hex   the name's bytes in hexadecimal when it is not UTF-8, else null
  held       whether anybody holds the lock
  holder     null, or {\"owner\": ID, \"count\": HOLDS}
  ttl_ms     milliseconds until the lock runs out unless renewed, or null
  token      fencing token of the present or the last hold, or null
  queue      waiters in order: [{\"owner\": ID, \"alive\": true, false or null (unknown)}]
  queue_len  number of waiters; larger than the list when that was cut short

Exit code: 0 whether the lock is held or free.";

/// Asks the store once and prints the answer.
pub(crate) async fn status(args: args::Status) -> Result<Code, Failure> {
    let store = Store::resolve(&args.store)?;
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    let status = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        status = ask(store, args.kind, &args.name) => status?,
    };
    let text = if args.json {
        format!("{}\n", json_form(&args.name, &status))
    } else {
        human_form(&args.name, &status)
    };
    output::print(&text)
}

async fn ask(store: Store, kind: args::Kind, name: &OsStr) -> Result<LockStatus, Failure> {
    let client = store.connect().await?;
    // The fair lock's view holds the plain one's: they share the hash, and a plain lock's queue is
    // empty.
    let status = store::lock(&client, kind, name.as_bytes()).inspect().await;
    store::shutdown(client).await;
    Ok(status?)
}

fn human_form(name: &OsStr, status: &LockStatus) -> String {
    let mut text = format!("{}: ", message::printable(name));
    // Writing to a string cannot fail.
    match &status.holder {
        None => text.push_str("free\n"),
        Some(holder) => {
            let _ = write!(text, "held by {}", holder.owner);
            if holder.count != 1 {
                let _ = write!(text, ", {} holds", holder.count);
            }
            if let Some(ttl) = status.ttl {
                let _ = write!(text, ", runs out in {} unless renewed", duration::human(ttl));
            }
            text.push('\n');
        }
    }
    if let Some(token) = &status.token {
        let _ = writeln!(text, "  token {token}");
    }
    for (place, waiter) in status.queue.iter().enumerate() {
        let life = match waiter.alive {
            Some(true) => "",
            Some(false) => " (dead)",
            None => " (may be dead)",
        };
        let _ = writeln!(text, "  {:>4}. {}{life}", place + 1, waiter.owner);
    }
    let unlisted = status.queue_len.saturating_sub(status.queue.len());
    if unlisted > 0 {
        let _ = writeln!(text, "  and {unlisted} more in the queue");
    }
    text
}

fn json_form(name: &OsStr, status: &LockStatus) -> Value {
    json!({
        "schema": 1,
        "name": name.to_string_lossy(),
        "name_hex": name.to_str().is_none().then(|| hex(name.as_bytes())),
        "held": status.holder.is_some(),
        "holder": status.holder.as_ref().map(|holder| json!({
            "owner": holder.owner.to_string(),
            "count": holder.count,
        })),
        "ttl_ms": status.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
        // Below 2^53, so that every JSON reader keeps it exact.
        "token": status.token.as_ref().map(|token| token.get()),
        "queue": status.queue.iter().map(|waiter| json!({
            "owner": waiter.owner.to_string(),
            "alive": waiter.alive,
        })).collect::<Vec<_>>(),
        "queue_len": status.queue_len,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
