//! Takes a lock away from those that somebody was asked about, and not from one who got it while the question stood.

use fairlock::{Client, Error, Kind};

use super::handle::Handle;
use super::look::Seen;

/// Said when others hold the lock than those that the question named.
pub(crate) const CHANGED: &str = "another one holds it by now; nothing was done";

/// Those that a question named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) kind: Option<Kind>,
    /// The id of the first of them.
    pub(crate) holder: String,
    pub(crate) token: Option<u64>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Taken away from so many holders; 0 if it was free.
    From(usize),
    /// Others hold it by now, and still do.
    Changed,
}

impl Named {
    /// Those who hold the lock; `None` if it is free.
    pub(crate) fn of(seen: &Seen) -> Option<Self> {
        let holder = seen.status.holder.as_ref()?.owner.to_string();
        Some(Self { kind: seen.kind, holder, token: seen.status.token.map(|token| token.get()) })
    }

    /// Takes the lock away, if a look that was made just now saw the same. Those who read at the same time have one
    /// token; of a semaphore, whose permits come and go, it takes all.
    pub(crate) async fn take_away(&self, client: &Client, seen: &Seen) -> Result<Taken, Error> {
        let Some(now) = Self::of(seen) else { return Ok(Taken::From(0)) };
        let is_same = match seen.kind {
            Some(Kind::Semaphore) => self.kind == now.kind,
            Some(Kind::ReadWrite) => self.kind == now.kind && self.token == now.token,
            _ => self.token == now.token && self.holder == now.holder,
        };
        if !is_same {
            return Ok(Taken::Changed);
        }
        let kind = seen.kind.unwrap_or(Kind::Fair);
        let handle = Handle::of_kind(client, kind, seen.name.as_bytes());
        handle.force_unlock().await.map(Taken::From)
    }
}
