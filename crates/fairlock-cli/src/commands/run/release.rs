//! Giving the lock back, and what came of it.

use std::time::Duration;

use fairlock::{Check, Client, ErrorKind, Guard, Release};
use tokio::time;

/// How long past the lock's deadline the answer to a release is waited for.
const SLACK: Duration = Duration::from_secs(1);

/// What is said of a lock that nobody could say anything of when it was to be given back: the reason for
/// that may be the same that has ended the hold before.
const IN_DOUBT: &str =
    "it is not known whether the lock was released, nor whether it was held to the end";

/// What is known after a release.
#[derive(Debug)]
pub(super) enum Outcome {
    Released,
    Lost,
    /// Why it is not known.
    Unknown(String),
}

/// Releases while that still means something: past its deadline the lock is free by itself.
pub(super) async fn release(guard: Guard) -> Outcome {
    let limit = guard.remaining() + SLACK;
    match time::timeout(limit, guard.release()).await {
        Ok(Ok(Release::Lost)) => Outcome::Lost,
        Ok(Ok(Release::Unknown)) => Outcome::Unknown(String::new()),
        // `StillHeld` needs a re-entry, which nobody here makes.
        Ok(Ok(_)) => Outcome::Released,
        Ok(Err(error)) => match error.kind() {
            ErrorKind::Lost => Outcome::Lost,
            _ => Outcome::Unknown(format!(": {error}")),
        },
        Err(_) => Outcome::Unknown(": no answer in time".to_owned()),
    }
}

/// What is said of a lock in doubt, for this `reason`, which may be empty. A release that was denied half way has
/// none: the client says as a warning which right is missing.
pub(super) fn in_doubt(client: &Client, reason: &str) -> String {
    let mut text = format!("{IN_DOUBT}{reason}");
    for warning in client.warnings().iter().filter(|warning| warning.check() == Check::Rights) {
        text.push_str(&format!(": {warning}"));
    }
    text
}

/// Leaves the lock held for the rest of a time, by nobody.
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
