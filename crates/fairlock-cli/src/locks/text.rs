//! A lock, its holder and its clients as text.

use std::fmt::Write as _;
use std::time::SystemTime;

use fairlock::{ClientInfo, LockStatus};

use crate::base::duration;

/// The holder, with a second line if its client publishes who it is; `None` if the lock is free.
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

/// `done, next start in 43m00s`; `None` if the lock is free or in use.
pub(crate) fn done(status: &LockStatus) -> Option<String> {
    let left = status.ttl.filter(|_| status.is_done())?;
    Some(format!("done, next start in {}", duration::human(left)))
}

/// How long ago, by the store's clock.
pub(crate) fn age(status: &LockStatus, since: Option<SystemTime>) -> Option<String> {
    status.at.duration_since(since?).ok().map(duration::human)
}

/// `ann@web-1, pid 42, nightly`: the label comes last, because it may be anything.
pub(crate) fn who(client: &ClientInfo) -> String {
    let user = client.user.as_deref().unwrap_or("?");
    let host = client.host.as_deref().unwrap_or("?");
    let mut text = format!("{user}@{host}, pid {}", client.pid);
    if let Some(label) = &client.label {
        let _ = write!(text, ", {label}");
    }
    text
}
