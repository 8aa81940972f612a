//! Recent releases, in case the next server does not know of them.

use crate::base::clock::{Moment, lock};
use crate::store::Scope;
use fairlock_core::{LockName, Op};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// How old a release may be when the connection is lost. A server that was replaced is noticed
/// after 2 to 4 s without an announcement, and replication seldom lags as much.
const KEPT: Duration = Duration::from_secs(10);

/// Most releases kept: each costs some 200 bytes, and one that is missing costs a lease.
const KEPT_MAX: usize = 4_096;

/// Locks released and requests left recently, the oldest first.
#[derive(Default)]
pub(crate) struct RecentReleases {
    given: Mutex<VecDeque<Given>>,
}

struct Given {
    at: Moment,
    name: LockName,
    op: Op,
    /// The connection of its lock is lost: it is kept until it has been repeated on the next one.
    /// On a Cluster, some connections may be lost and others not.
    lost: bool,
}

impl RecentReleases {
    /// Notes `op`, which released a lock or left a request: the store has answered it, or cannot be
    /// reached.
    pub(crate) fn note(&self, name: &LockName, op: &Op, reached: bool) {
        let at = Moment::now();
        let mut given = lock(&self.given);
        let is_over = |old: &Given| !old.lost && at.since(old.at) > KEPT;
        while given.len() >= KEPT_MAX || given.front().is_some_and(is_over) {
            given.pop_front();
        }
        given.push_back(Given { at, name: name.clone(), op: op.clone(), lost: !reached });
    }

    /// The connection of these locks is lost. Releases that are old by now are not repeated on the
    /// next one.
    pub(crate) fn connection_lost(&self, scope: &Scope) {
        let now = Moment::now();
        lock(&self.given).retain_mut(|given| {
            // A connection that was lost before is still being waited for.
            let is_over = now.since(given.at) > KEPT && !given.lost;
            let is_meant = scope.has(&given.name);
            given.lost |= is_meant;
            !(is_meant && is_over)
        });
    }

    /// Whether there is anything that another server might need to be told.
    pub(crate) fn is_any(&self) -> bool {
        lock(&self.given).back().is_some_and(|given| Moment::now().since(given.at) <= KEPT)
    }

    /// The connection of these locks is made. Returns what its server must be told.
    pub(crate) fn found(&self, scope: &Scope) -> Vec<(LockName, Op)> {
        let mut given = lock(&self.given);
        let given = given.iter_mut().filter(|given| scope.has(&given.name));
        let told = given.map(|given| {
            given.lost = false;
            (given.name.clone(), given.op.clone())
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "redis")]
    use std::sync::Arc;

    #[test]
    fn it_is_bounded() {
        let recent = RecentReleases::default();
        let name = |n: usize| LockName::new(n.to_string().as_bytes()).unwrap();
        for n in 0..KEPT_MAX + 5 {
            recent.note(&name(n), &Op::Nudge, true);
        }
        let all = recent.found(&Scope::All);
        assert_eq!((all.len(), &all[0].0), (KEPT_MAX, &name(5)));
        recent.connection_lost(&Scope::All);
        assert_eq!(recent.found(&Scope::All).len(), KEPT_MAX);
        for given in lock(&recent.given).iter_mut().take(7) {
            given.at = given.at.minus_ms(KEPT.as_millis() as u64 + 1);
        }
        recent.connection_lost(&Scope::All);
        assert_eq!(recent.found(&Scope::All)[0].0, name(12));
    }

    /// However long there is no server to tell.
    #[test]
    fn what_ends_without_a_connection_waits_for_the_next() {
        let recent = RecentReleases::default();
        let note = |name: &[u8], reached| {
            recent.note(&LockName::new(name).unwrap(), &Op::Nudge, reached);
            age(&recent);
        };
        recent.connection_lost(&Scope::All);
        note(b"one", false);
        note(b"two", false);
        assert_eq!(recent.found(&Scope::All).len(), 2);
        note(b"three", true);
        assert_eq!(recent.found(&Scope::All).len(), 1, "the others were told, and are old");
    }

    /// Makes everything old.
    fn age(recent: &RecentReleases) {
        for given in lock(&recent.given).iter_mut() {
            given.at = given.at.minus_ms(KEPT.as_millis() as u64 + 1);
        }
    }

    /// D14: two nodes of a Cluster are lost, and one comes back. What was noted for the other one
    /// was forgotten at the next release, and the other one was never told.
    #[test]
    #[cfg(feature = "redis")]
    fn d14_the_return_of_one_node_forgets_nothing_of_another() {
        let recent = RecentReleases::default();
        let of = |node: &'static [u8]| {
            Scope::These(Arc::new(move |name: &LockName| name.as_bytes().starts_with(node)))
        };
        let note = |name: &[u8], reached| {
            recent.note(&LockName::new(name).unwrap(), &Op::Nudge, reached);
        };
        note(b"a1", true);
        note(b"b1", true);
        recent.connection_lost(&of(b"a"));
        recent.connection_lost(&of(b"b"));
        note(b"b2", false);
        age(&recent);
        assert_eq!(recent.found(&of(b"a")).len(), 1);
        note(b"a2", true);
        note(b"a3", true);
        // It is lost again, according to another look at the slot map.
        recent.connection_lost(&of(b"b"));
        let told = recent.found(&of(b"b"));
        let told: Vec<_> = told.iter().map(|(name, _)| name.as_bytes()).collect();
        assert_eq!(told, [b"b1", b"b2"]);
        age(&recent);
        note(b"b3", true);
        assert_eq!(recent.found(&Scope::All).len(), 1, "all others were told, and are old");
    }
}
