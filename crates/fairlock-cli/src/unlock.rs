//! `fairlock unlock`: takes a lock away from whoever holds it.

use std::os::unix::ffi::OsStrExt as _;

use crate::args;
use crate::exit::{Code, Failure};
use crate::message;
use crate::output;
use crate::store::{self, Store};

/// Frees the lock; the code is 0 also when nobody held it. Signals keep their default action: the
/// command is sent whole or not at all.
pub(crate) async fn unlock(args: args::Unlock) -> Result<Code, Failure> {
    let name = message::printable(&args.name);
    if !args.force {
        return Err(Failure::usage(format!(
            "{name}: the holder may still be at work; say --force to take the lock away"
        )));
    }
    let client = Store::resolve(&args.store)?.silent().connect().await?;
    let lock = store::lock(&client, args.kind, args.name.as_bytes());
    let freed = lock.force_unlock().await;
    store::shutdown(client).await;
    output::print(&match freed? {
        true => format!("{name}: unlocked\n"),
        false => format!("{name}: was not locked\n"),
    })
}
