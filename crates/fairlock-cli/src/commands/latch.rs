//! `fairlock latch`: sets a latch, counts it down, removes it, looks at it, or waits until it is open.
//!
//! The JSON form (`HELP`) is a contract: fields are added, never renamed or removed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fairlock::{Error, ErrorKind, Latch, Opened};
use serde_json::json;

use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::output;
use crate::locks::form;
use crate::locks::look::{self, Name};
use crate::locks::nested::Outer;
use crate::settings::options;
use crate::store::{self, Store};

const EXAMPLES: &str = "\
Examples:
  fairlock latch import --set 3                 three parts are to come
  fairlock latch import --down                  one part is done
  fairlock latch import --wait --wait-for 10m   wait until all are done, at most ten minutes
  fairlock latch import --show                  show how many are still to come
";

const HELP: &str = "\
Exit codes:
  0        set, counted down or deleted; with --wait, counted down to 0; with --show, closed
  1        --set: already set, and not changed. --wait: gone (deleted, lost with the store's data,
           or never set). --delete, --show: there is none (counted down, deleted or never set)
  64       wrong usage or a wrong setting; the name is in use as a lock, or by another program, or
           it is a lock of the run that started this command
  69       the store cannot be reached, or there is none; if the change may have been made anyway,
           the message says so
  70       internal error; an answer or a file that is not fairlock's; stdout cannot be written
  75       not open within --wait-for
  77       access denied by the store, or no encrypted connection to a verified server; without the
           right to the latch's channel, the change may be made, but waiters are not notified

With --json, one object on one line:
  schema   1; fields may be added under the same number
  name     the latch's name, as text; bytes that are not UTF-8 are replaced
  name_hex the name's bytes in hexadecimal if it is not UTF-8, else null
  state    \"set\", \"closed\", \"counted_down\", \"gone\", \"deleted\", or \"open\": after --down and
           --show, counted down or gone
  count    what is left to count down, or null after --wait

Durations:
  500ms, 10s, 5m, 1m30s, 1.5h, 1d, 0";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Args {
    /// The latch's name, any bytes. Redisson calls it `getCountDownLatch(NAME)`.
    #[arg(value_name = "NAME")]
    name: OsString,

    /// Set the count, from 1 to 2^53 - 1, unless it is set already.
    #[arg(long, value_name = "N", group = "what", value_parser = clap::value_parser!(u64).range(1..1 << 53))]
    set: Option<u64>,

    /// Count down by one. At 0 the latch is open.
    #[arg(long, group = "what")]
    down: bool,

    /// Wait until the latch is open. A latch that was never set is open.
    #[arg(long, group = "what")]
    wait: bool,

    /// Delete the latch, whatever its count. Its waiters are notified.
    #[arg(long, group = "what")]
    delete: bool,

    /// Show the latch, and change nothing.
    #[arg(long, group = "what")]
    show: bool,

    /// Longest wait of --wait. Default: no limit.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["set", "down", "delete", "show"], value_parser = duration::parse)]
    wait_for: Option<Duration>,

    /// Print JSON; `--help` describes its fields.
    #[arg(long)]
    json: bool,

    /// Print only errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    #[command(flatten)]
    store: options::Store,
}

/// What was found, or done.
struct Outcome {
    code: Code,
    text: String,
    state: &'static str,
    count: Option<u64>,
}

/// Carries out what was asked. Signals keep their default action: a request is sent completely or not
/// at all, and a wait leaves nothing behind.
pub(crate) async fn latch(args: Args) -> Result<Code, Failure> {
    let store = Store::resolve(&args.store)?.silent();
    let store = store.waited_for(args.wait_for);
    store.warn(args.quiet);
    let asked = store.asked(args.quiet);
    let client = store.connect(args.quiet).await?;
    let name = [Name::new(args.name.as_bytes())];
    let refused = match args.wait {
        // No latch has the name of a lock in use; but a lock of a run around this says more than that.
        true => {
            let outer = Outer::of_environment();
            outer.refuse_waiting(&client, &name, &look::kinds(None), args.wait_for).await
        }
        false => Ok(()),
    };
    let done = match refused {
        Ok(()) => carry_out(&client.latch(args.name.as_bytes()), &args).await,
        Err(refusal) => Err(refusal),
    };
    store::shutdown_after(client, &done).await;
    let Outcome { code, text, state, count } = done?;
    if (args.show || args.delete) && code == Code::NO {
        asked.found_nothing();
    }
    let name = message::printable(&args.name);
    if args.json {
        let form = json!({
            "schema": 1,
            "name": args.name.to_string_lossy(),
            "name_hex": args.name.to_str().is_none().then(|| form::hex(args.name.as_bytes())),
            "state": state,
            "count": count,
        });
        output::print(&format!("{form}\n")).map_err(|failure| done_all_the_same(failure, &text))?;
    } else if !args.quiet {
        let line = format!("{name}: {text}\n");
        output::print(&line).map_err(|failure| done_all_the_same(failure, &text))?;
    }
    Ok(code)
}

/// Who counts down again because stdout could not be written counts twice.
fn done_all_the_same(failure: Failure, text: &str) -> Failure {
    Failure::new(failure.code(), format!("{failure}; it was done all the same: {text}"))
}

/// Who repeats a count-down that was carried out counts twice.
fn in_doubt(error: Error) -> Failure {
    let is_done = match error.kind() {
        ErrorKind::Unknown => {
            "it may have been done all the same; look with --show before you repeat it"
        }
        ErrorKind::NotReplicated => "the server has done it all the same; do not repeat it",
        _ => return error.into(),
    };
    let failure = Failure::from(error);
    Failure::new(failure.code(), format!("{failure}; {is_done}"))
}

async fn carry_out(latch: &Latch, args: &Args) -> Result<Outcome, Failure> {
    if let Some(count) = args.set {
        let is_new = latch.try_set(count).await.map_err(in_doubt)?;
        let left = if is_new { count } else { latch.count().await? };
        let (code, text, state) = match is_new {
            true => (Code::OK, format!("set to {left}"), "set"),
            false => (Code::NO, format!("is set already, {left} left"), "closed"),
        };
        return Ok(Outcome { code, text, state, count: Some(left) });
    }
    if args.down {
        let left = latch.count_down().await.map_err(in_doubt)?;
        let (text, state) = match left {
            0 => ("open".to_owned(), "open"),
            left => (format!("{left} left"), "closed"),
        };
        return Ok(Outcome { code: Code::OK, text, state, count: Some(left) });
    }
    if args.delete {
        let (code, text, state) = match latch.delete().await.map_err(in_doubt)? {
            true => (Code::OK, "deleted", "deleted"),
            false => (Code::NO, "there is none: counted down, deleted, or never set", "open"),
        };
        return Ok(Outcome { code, text: text.to_owned(), state, count: Some(0) });
    }
    if args.show {
        let left = latch.count().await?;
        let (code, text, state) = match left {
            0 => (Code::NO, "open: counted down, deleted, or never set".to_owned(), "open"),
            left => (Code::OK, format!("{left} left"), "closed"),
        };
        return Ok(Outcome { code, text, state, count: Some(left) });
    }
    let opened = match args.wait_for {
        None => Some(latch.wait().await?),
        Some(time) => latch.wait_for(time).await?,
    };
    let (code, text, state) = match opened {
        Some(Opened::CountedDown) => (Code::OK, "counted down", "counted_down"),
        Some(_) => (Code::NO, "gone: deleted, lost, set again, or never set", "gone"),
        None => (Code::CONFLICT, "not open in time", "closed"),
    };
    Ok(Outcome { code, text: text.to_owned(), state, count: None })
}
