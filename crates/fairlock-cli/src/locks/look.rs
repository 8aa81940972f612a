//! Looks at many locks at once, of any kind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use fairlock::{Client, Error, ErrorKind, Kind, LockEntry, LockStatus};
use tokio::task::JoinSet;

use crate::base::message;

/// Looks under way at a time. They share a connection, so this is a pipeline.
pub(crate) const AT_ONCE_MAX: usize = 100;

/// A lock to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: Name,
    /// `None` if unknown: the look finds out.
    pub(crate) kind: Option<Kind>,
}

/// The bytes of a lock's name. They need not be a legal name; the look reports that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(Arc<[u8]>);

impl Name {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The name made printable.
    pub(crate) fn printable(&self) -> String {
        message::printable(self.as_os_str())
    }
}

/// The result of a look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: Name,
    /// The kind, as far as it can be determined.
    pub(crate) kind: Option<Kind>,
    pub(crate) status: LockStatus,
}

impl From<&LockEntry> for Target {
    fn from(entry: &LockEntry) -> Self {
        Self { name: Name::new(entry.name.as_bytes()), kind: entry.kind }
    }
}

/// Looks at one lock, and lists at most `waiters` of its queue.
pub(crate) async fn look(client: &Client, target: Target, waiters: usize) -> Result<Seen, Error> {
    let Target { name, kind } = target;
    let bytes = name.as_bytes();
    if kind == Some(Kind::Simple) {
        let looked = client.simple_lock(bytes).inspect_first(waiters).await;
        if !looked.as_ref().is_err_and(|error| error.kind() == ErrorKind::WrongType) {
            return Ok(Seen { kind, status: looked?, name });
        }
        // It was a simple lock when it was found, and is none now.
    }
    // The fair lock's view covers a plain lock: they share the hash, and the queue of a plain lock is
    // empty.
    let looked = client.fair_lock(bytes).inspect_first(waiters).await;
    let is_other = looked.as_ref().is_err_and(|error| error.kind() == ErrorKind::WrongType);
    if is_other && let Ok(status) = client.simple_lock(bytes).inspect_first(waiters).await {
        return Ok(Seen { kind: Some(Kind::Simple), status, name });
    }
    let status = looked?;
    let kind = match kind.filter(|kind| *kind != Kind::Simple) {
        None if status.queue_len > 0 => Some(Kind::Fair),
        kind => kind,
    };
    Ok(Seen { name, kind, status })
}

/// Looks at all targets; the results are in their order.
pub(crate) async fn look_all(
    client: &Client,
    targets: &[Target],
    waiters: usize,
) -> Vec<Result<Seen, Error>> {
    let mut results = Vec::with_capacity(targets.len());
    for some in targets.chunks(AT_ONCE_MAX) {
        let mut looks = JoinSet::new();
        for (at, target) in some.iter().cloned().enumerate() {
            let client = client.clone();
            looks.spawn(async move { (at, look(&client, target, waiters).await) });
        }
        let mut done = looks.join_all().await;
        done.sort_unstable_by_key(|(at, _)| *at);
        results.extend(done.into_iter().map(|(_, result)| result));
    }
    results
}

/// The word for a kind, or for an unknown one.
pub(crate) fn kind_word(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::Fair) => "fair",
        Some(Kind::Plain) => "plain",
        Some(Kind::Simple) => "simple",
        _ => "-",
    }
}
