//! Releasing the lock, and the outcome.

use std::time::Duration;

use fairlock::{Check, Client, ErrorKind, Guard, Release};
use tokio::time;

use crate::locks::held::Held;

/// How long past the lock's deadline a release waits for its answer.
const SLACK: Duration = Duration::from_secs(1);

/// The message for a release without an answer. The cause may be the same that ended the hold before.
const IN_DOUBT: &str =
    "it is not known whether the lock was released, nor whether it was held to the end";

/// The outcome of a release.
#[derive(Debug)]
pub(super) enum Outcome {
    Released,
    Lost,
    /// The outcome is not known, for this reason.
    Unknown(String),
}

/// Releases the lock, and waits no longer than useful: past its deadline the lock becomes free by itself.
pub(super) async fn release(guard: Held) -> Outcome {
    let limit = guard.remaining() + SLACK;
    match time::timeout(limit, guard.release()).await {
        Ok(Ok(Release::Lost)) => Outcome::Lost,
        Ok(Ok(Release::Unknown)) => Outcome::Unknown(String::new()),
        // `StillHeld` needs a re-entry, which this program does not make.
        Ok(Ok(_)) => Outcome::Released,
        Ok(Err(error)) => match error.kind() {
            ErrorKind::Lost => Outcome::Lost,
            _ => Outcome::Unknown(format!(": {error}")),
        },
        Err(_) => Outcome::Unknown(": no answer in time".to_owned()),
    }
}

/// The message for a lock in doubt, with a `reason`, which may be empty. A release that was denied half way has none:
/// a warning of the client names the missing right.
pub(super) fn in_doubt(client: &Client, reason: &str) -> String {
    let mut text = format!("{IN_DOUBT}{reason}");
    for warning in client.warnings().iter().filter(|warning| warning.check() == Check::Rights) {
        text.push_str(&format!(": {warning}"));
    }
    text
}

/// Leaves the lock held for the rest of a time, without a process that holds it.
pub(super) async fn leave(guard: Guard, rest: Duration) -> Outcome {
    let limit = guard.remaining() + SLACK;
    match time::timeout(limit, guard.detach_for(rest)).await {
        Ok(Ok(_)) => Outcome::Released,
        Ok(Err(error)) => match error.kind() {
            ErrorKind::Lost => Outcome::Lost,
            _ => Outcome::Unknown(format!(": {error}")),
        },
        Err(_) => Outcome::Unknown(": no answer in time".to_owned()),
    }
}
