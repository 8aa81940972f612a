//! Recent releases, in case the next server does not know of them.

use crate::id::LockName;
use crate::op::Op;
use std::collections::VecDeque;
use std::time::Duration;

/// Locks released and requests left recently, the oldest first. Times count from any moment of the
/// client's own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecentReleases {
    given: VecDeque<Given>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Given {
    at: Duration,
    name: LockName,
    op: Op,
    /// The connection of its lock is lost: it is kept until it has been repeated on the next one.
    /// On a Cluster, some connections may be lost and others not.
    lost: bool,
}

impl Given {
    fn is_old(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) > RecentReleases::KEPT
    }
}

impl RecentReleases {
    /// How old a release may be when the connection is lost. A server that was replaced is noticed
    /// after 2 to 4 s without an announcement, and replication seldom lags as much.
    pub const KEPT: Duration = Duration::from_secs(10);

    /// Most releases kept: each takes some 200 bytes, and one that is dropped costs a lease.
    pub const KEPT_MAX: usize = 4_096;

    /// Notes `op`, which released a lock or left a request: the store has answered it, or cannot be
    /// `reached`.
    pub fn note(&mut self, now: Duration, name: &LockName, op: &Op, reached: bool) {
        let is_over = |given: &Given| !given.lost && given.is_old(now);
        while self.given.len() >= Self::KEPT_MAX || self.given.front().is_some_and(is_over) {
            self.given.pop_front();
        }
        self.given.push_back(Given { at: now, name: name.clone(), op: op.clone(), lost: !reached });
    }

    /// The connection of the locks that are `meant` is lost. Releases that are old by now are not
    /// repeated on the next one.
    pub fn connection_lost(&mut self, now: Duration, meant: impl Fn(&LockName) -> bool) {
        self.given.retain_mut(|given| {
            // A connection that was lost before is still being waited for.
            let is_over = given.is_old(now) && !given.lost;
            let is_meant = meant(&given.name);
            given.lost |= is_meant;
            !(is_meant && is_over)
        });
    }

    /// Whether there is anything to repeat on another server.
    pub fn is_any(&self, now: Duration) -> bool {
        self.given.back().is_some_and(|given| !given.is_old(now))
    }

    /// The connection of the locks that are `meant` is made. Returns the releases to repeat on its
    /// server, the oldest first.
    pub fn connected(&mut self, meant: impl Fn(&LockName) -> bool) -> Vec<(LockName, Op)> {
        let given = self.given.iter_mut().filter(|given| meant(&given.name));
        let told = given.map(|given| {
            given.lost = false;
            (given.name.clone(), given.op.clone())
        });
        told.collect()
    }
}
