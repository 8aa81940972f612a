//! The kinds as which this client has had its locks, as far as the store knows them: it is told once for each name, and
//! again after some hours, so that the common path costs a comparison.

use crate::base::clock::lock;
use fairlock_core::{Kind, LockName};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The store is told again in the next period: a store keeps the note for a day.
const PERIOD: Duration = Duration::from_secs(21_600);

/// Names remembered. A client with more of them tells the store nothing of the others until the next period.
const NAMES_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Kinds {
    noted: Mutex<Noted>,
    /// The store does not allow it.
    denied: AtomicBool,
}

#[derive(Default)]
struct Noted {
    /// The last name, with its kind and the period: comparing is cheaper than hashing.
    last: Option<(LockName, Kind, u64)>,
    known: HashMap<LockName, Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    kind: Kind,
    period: u64,
    warned: bool,
}

impl Kinds {
    /// The lock is granted as this kind, at about this moment. Returns whether the store must be told.
    pub(crate) fn granted(&self, name: &LockName, kind: Kind, ns: u64) -> bool {
        let period = ns / PERIOD.as_nanos() as u64;
        let mut noted = lock(&self.noted);
        match &noted.last {
            Some((last, of, at)) if last == name && *of == kind && *at == period => false,
            _ => noted.changed(name, kind, period) && !self.denied.load(Ordering::Relaxed),
        }
    }

    /// Notes that the name was warned of. Returns whether this is the first time.
    pub(crate) fn warns(&self, name: &LockName) -> bool {
        let mut noted = lock(&self.noted);
        noted.known.get_mut(name).is_some_and(|it| !std::mem::replace(&mut it.warned, true))
    }

    /// The store does not allow it: asking again would only fill its log.
    pub(crate) fn deny(&self) {
        self.denied.store(true, Ordering::Relaxed);
    }
}

impl Noted {
    /// Notes a name that is not the last one. Returns whether the store must be told.
    fn changed(&mut self, name: &LockName, kind: Kind, period: u64) -> bool {
        self.last = Some((name.clone(), kind, period));
        let before = self.known.get(name).copied();
        if before.is_some_and(|it| it.period == period && (it.kind == kind || it.warned)) {
            return false;
        }
        if before.is_none() && self.known.len() >= NAMES_MAX {
            self.known.retain(|_, it| it.period == period);
            if self.known.len() >= NAMES_MAX {
                return false;
            }
        }
        let warned = before.is_some_and(|it| it.warned);
        self.known.insert(name.clone(), Known { kind, period, warned });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = PERIOD.as_nanos() as u64;

    fn name(number: usize) -> LockName {
        LockName::new(format!("job:{number}").as_bytes()).unwrap()
    }

    #[test]
    fn the_store_is_told_once_in_a_period_and_of_another_kind() {
        let (kinds, a, b) = (Kinds::default(), name(1), name(2));
        assert!(kinds.granted(&a, Kind::Fair, 5));
        assert!(!kinds.granted(&a, Kind::Fair, 6));
        assert!(kinds.granted(&b, Kind::Fair, 6));
        assert!(!kinds.granted(&a, Kind::Fair, 7), "it is not the last one any more");
        assert!(kinds.granted(&a, Kind::Semaphore, 8));
        assert!(kinds.warns(&a) && !kinds.warns(&a));
        assert!(!kinds.granted(&a, Kind::Fair, 9), "a program that mixes kinds tells it once");
        assert!(kinds.granted(&a, Kind::Fair, PERIOD_NS));
        assert!(!kinds.warns(&a));
        kinds.deny();
        assert!(!kinds.granted(&name(3), Kind::Fair, PERIOD_NS));
    }

    #[test]
    fn a_client_with_many_names_remembers_some_of_each_period() {
        let kinds = Kinds::default();
        let told = |ns| (0..10_000).filter(|n| kinds.granted(&name(*n), Kind::Fair, ns)).count();
        assert_eq!((told(0), told(1), told(PERIOD_NS)), (NAMES_MAX, 0, NAMES_MAX));
        assert_eq!(lock(&kinds.noted).known.len(), NAMES_MAX);
    }
}
