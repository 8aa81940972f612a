//! `fairlock unlock`: takes a lock away from whoever holds it.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use fairlock::Lock;

use crate::args;
use crate::exit::{Code, Failure};
use crate::help;
use crate::message;
use crate::output;
use crate::status;
use crate::store::{self, Store};

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0        the lock was held and is free now
  1        nothing was freed: nobody held it, or the question was answered with no
  64       wrong usage, or a wrong setting
  69       the store cannot be reached
  77       access denied by the store

On a terminal:
  When stdin and stderr are terminals, the holder is shown and one is asked, unless --yes is given.";

/// Frees the lock. Signals keep their default action: the command is sent whole or not at all.
pub(crate) async fn unlock(args: args::Unlock) -> Result<Code, Failure> {
    let name = message::printable(&args.name);
    if !args.force {
        return Err(Failure::usage(format!(
            "{name}: the holder may still be at work; say --force to take the lock away; {}",
            help::advice(&["unlock"])
        )));
    }
    let store = Store::resolve(&args.store)?.looked_at().java_fleet(args.java_fleet)?;
    store.warn(args.quiet);
    let client = store.connect(args.quiet).await?;
    let lock = store::lock(&client, args.kind, args.name.as_bytes());
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let done = free(&lock, &name, asks).await;
    store::shutdown(client).await;
    let (code, text) = match done? {
        Done::Freed => (Code::OK, "unlocked"),
        Done::NotHeld => (Code::NO, "was not locked"),
        Done::LeftAlone => (Code::NO, "left alone"),
    };
    if !args.quiet {
        output::print(&format!("{name}: {text}\n"))?;
    }
    Ok(code)
}

enum Done {
    Freed,
    NotHeld,
    LeftAlone,
}

async fn free(lock: &Lock, name: &str, asks: bool) -> Result<Done, Failure> {
    if asks {
        let status = lock.inspect().await?;
        let Some(holder) = status::holder(&status) else { return Ok(Done::NotHeld) };
        if !confirmed(&format!("{name}: {holder}\nTake the lock away from it? [y/N] "))? {
            return Ok(Done::LeftAlone);
        }
    }
    Ok(if lock.force_unlock().await? { Done::Freed } else { Done::NotHeld })
}

/// Asks on the terminal; only a clear yes is one.
fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut answer = String::new();
    let asked = io::stderr().write_all(question.as_bytes());
    asked
        .and_then(|()| io::stdin().read_line(&mut answer))
        .map_err(|error| Failure::new(Code::INTERNAL, format!("the terminal: {error}")))?;
    Ok(["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes)))
}
