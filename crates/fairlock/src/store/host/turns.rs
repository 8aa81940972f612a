//! Whose turn it is to write, among the clients of one process.
//!
//! SQLite has no queue: a client that finds the file locked tries again some time later. A thousand
//! clients that do so take the processors from the one that has the lock, and none makes progress.
//! So the clients of one process stand in line here, and only the first of them tries; among
//! processes it stands in another line (`line`).

use super::line::Line as Processes;
use crate::base::clock::{Moment, lock};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

/// By device and inode number of the file.
type Lines = HashMap<(u64, u64), Weak<Turns>>;

/// The line for each file that this process has open.
static ALL: Mutex<Option<Lines>> = Mutex::new(None);

/// The line for one file.
#[derive(Debug, Default)]
pub(super) struct Turns {
    line: Mutex<Line>,
    /// Used by the one that has its turn.
    processes: Processes,
}

#[derive(Debug, Default)]
struct Line {
    /// Somebody has its turn.
    taken: bool,
    waiting: VecDeque<Arc<Place>>,
}

#[derive(Debug)]
struct Place {
    thread: Thread,
    called: AtomicBool,
}

/// A turn, which lasts until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// The line for the file with this device and inode number.
    pub(super) fn before(file: (u64, u64)) -> Arc<Self> {
        let mut all = lock(&ALL);
        let all = all.get_or_insert_default();
        if let Some(turns) = all.get(&file).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::default();
        all.insert(file, Arc::downgrade(&turns));
        turns
    }

    /// Waits for a turn, for `patience` at most, and returns it with the time that is left. `None`:
    /// it did not come in time.
    pub(super) fn wait(&self, patience: Duration) -> Option<(Turn<'_>, Duration)> {
        let place = {
            let mut line = lock(&self.line);
            if !line.taken {
                line.taken = true;
                return Some((Turn(self), patience));
            }
            let place =
                Arc::new(Place { thread: thread::current(), called: AtomicBool::new(false) });
            line.waiting.push_back(Arc::clone(&place));
            place
        };
        let until = Moment::now().plus(patience);
        loop {
            let left = until.left();
            if !place.called.load(Ordering::Acquire) && !left.is_zero() {
                thread::park_timeout(left);
                continue;
            }
            let mut line = lock(&self.line);
            // It may have been called just now.
            if place.called.load(Ordering::Acquire) {
                return Some((Turn(self), left));
            }
            line.waiting.retain(|other| !Arc::ptr_eq(other, &place));
            return None;
        }
    }
}

impl Turn<'_> {
    /// The line of the processes.
    pub(super) fn processes(&self) -> &Processes {
        &self.0.processes
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.0.line);
        let Some(next) = line.waiting.pop_front() else {
            line.taken = false;
            return;
        };
        next.called.store(true, Ordering::Release);
        drop(line);
        next.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bound for what must happen.
    const SOON: Duration = Duration::from_secs(30);

    /// Turns come in the order of arrival, one at a time. Those who give up are skipped.
    #[test]
    fn turns_come_in_order() {
        let turns = Turns::before((0, 0));
        assert!(Arc::ptr_eq(&turns, &Turns::before((0, 0))));
        assert!(!Arc::ptr_eq(&turns, &Turns::before((0, 1))));
        let (first, left) = turns.wait(SOON).unwrap();
        assert_eq!(left, SOON);
        assert!(turns.wait(Duration::from_millis(1)).is_none());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..5 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let (_turn, _) = turns.wait(SOON).unwrap();
                    lock(order).push(number);
                });
                while lock(&turns.line).waiting.len() <= number {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*lock(&order), [0, 1, 2, 3, 4]);
        assert!(!lock(&turns.line).taken);
    }
}
