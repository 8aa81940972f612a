//! The tracked locks: a bounded number of those that a walk through the store has found.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock::Kind;

use crate::locks::look::{Name, Target};

/// How long a found lock stays after it was last in use.
const FREE_STAYS: Duration = Duration::from_secs(10);

/// The locks to look at.
#[derive(Debug)]
pub(super) struct Tracked {
    locks: BTreeMap<Name, Lock>,
    max: usize,
    /// Locks in use without room, in this walk and in the last one.
    passed: usize,
    hidden: usize,
    searched: bool,
}

#[derive(Debug)]
struct Lock {
    kind: Option<Kind>,
    waiting: usize,
    /// The user has named it, so it stays.
    named: bool,
    /// When it was last in use.
    used: Duration,
}

impl Tracked {
    /// Tracks the named locks, or none yet.
    pub(super) fn new(names: Vec<Name>, max: usize) -> Self {
        let named =
            |name| (name, Lock { kind: None, waiting: 0, named: true, used: Duration::ZERO });
        let locks: BTreeMap<_, _> = names.into_iter().map(named).collect();
        let searched = !locks.is_empty();
        Self { locks, max, passed: 0, hidden: 0, searched }
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        let target = |(name, lock): (&Name, &Lock)| Target { name: name.clone(), kind: lock.kind };
        self.locks.iter().map(target).collect()
    }

    pub(super) fn target(&self, name: &Name) -> Option<Target> {
        self.locks.get(name).map(|lock| Target { name: name.clone(), kind: lock.kind })
    }

    /// Locks in use that are not looked at.
    pub(super) fn hidden(&self) -> usize {
        self.hidden.max(self.passed)
    }

    /// Whether a walk has seen all locks once.
    pub(super) fn searched(&self) -> bool {
        self.searched
    }

    /// The walk has found this lock. Without room, locks with more waiters win.
    pub(super) fn found(&mut self, target: Target, held: bool, waiting: usize, now: Duration) {
        if !held && waiting == 0 {
            return;
        }
        let Target { name, kind } = target;
        if let Some(lock) = self.locks.get_mut(&name) {
            lock.used = now;
            lock.waiting = waiting;
            return;
        }
        if self.locks.len() >= self.max {
            self.passed += 1;
            let least = self.locks.iter().filter(|(_, lock)| !lock.named);
            let least = least.min_by_key(|(_, lock)| lock.waiting);
            match least {
                Some((least, lock)) if lock.waiting < waiting => {
                    let least = least.clone();
                    self.locks.remove(&least);
                }
                _ => return,
            }
        }
        let lock = Lock { kind, waiting, named: false, used: now };
        self.locks.insert(name, lock);
    }

    /// The walk has ended.
    pub(super) fn walked(&mut self) {
        self.hidden = self.passed;
        self.passed = 0;
        self.searched = true;
    }

    /// Takes in the result of a look. A lock that was not in use for a while makes room.
    pub(super) fn looked(
        &mut self,
        name: &Name,
        kind: Option<Kind>,
        in_use: bool,
        waiting: usize,
        now: Duration,
    ) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        // A fair lock without waiters looks like another kind; it keeps the kind that is known.
        lock.kind = kind.or(lock.kind);
        lock.waiting = waiting;
        if in_use {
            lock.used = now;
        } else if !lock.named && now.saturating_sub(lock.used) > FREE_STAYS {
            self.locks.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn find(tracked: &mut Tracked, name: &str, waiting: usize) {
        let target = Target { name: Name::new(name.as_bytes()), kind: None };
        tracked.found(target, true, waiting, secs(0));
    }

    fn names(tracked: &Tracked) -> String {
        tracked.targets().iter().map(|target| target.name.printable()).collect()
    }

    /// Locks with most waiters are tracked, the others are counted; named ones stay.
    #[test]
    fn there_is_room_for_so_many() {
        let mut tracked = Tracked::new(vec![Name::new(b"n")], 3);
        for (name, waiting) in [("a", 0), ("b", 1), ("c", 0), ("d", 2), ("e", 1)] {
            find(&mut tracked, name, waiting);
        }
        // `d` has replaced `a`.
        assert_eq!((names(&tracked).as_str(), tracked.hidden()), ("bdn", 3));
        tracked.walked();
        assert!(tracked.searched());
        // The next walk counts anew; until it has got as far, the last one's count is shown.
        find(&mut tracked, "a", 0);
        assert_eq!(tracked.hidden(), 3);
        tracked.walked();
        assert_eq!((names(&tracked).as_str(), tracked.hidden()), ("bdn", 1));
        // All are named: none has to go.
        let mut tracked = Tracked::new(vec![Name::new(b"n")], 1);
        find(&mut tracked, "a", 9);
        assert_eq!((names(&tracked).as_str(), tracked.hidden()), ("n", 1));
        // A free lock is not counted.
        tracked.found(Target { name: Name::new(b"x"), kind: None }, false, 0, secs(0));
        assert_eq!(tracked.hidden(), 1);
    }

    /// A found lock stays for a while after its use, so that people see it come and go.
    #[test]
    fn free_locks_make_room() {
        let mut tracked = Tracked::new(vec![Name::new(b"n")], 9);
        find(&mut tracked, "a", 0);
        let look = |tracked: &mut Tracked, in_use, at| {
            for name in [b"a", b"n"] {
                tracked.looked(&Name::new(name), Some(Kind::Simple), in_use, 0, secs(at));
            }
            names(tracked)
        };
        assert_eq!(look(&mut tracked, true, 5), "an");
        assert_eq!(look(&mut tracked, false, 15), "an");
        assert_eq!(tracked.targets()[0].kind, Some(Kind::Simple));
        assert_eq!(look(&mut tracked, false, 16), "n");
    }
}
