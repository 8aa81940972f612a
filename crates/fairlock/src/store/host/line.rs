//! Waits for the kernel's lock on a file (`flock`) in the kernel's own queue.
//!
//! SQLite has no queue: a process that finds the file locked tries again some time later. Some two
//! hundred processes that each try every 2 ms take the processors, and the kernel's table of locks,
//! from the one that has the file, and nobody gets through. So processes stand in line for the lock
//! on a file of its own, and only the first of them tries. The kernel wakes one at a time, in the
//! order of arrival; a process that dies or is stopped leaves its queue.
//!
//! The kernel's wait has no time limit, so a thread waits. If nobody wants the lock any more when it
//! comes, the thread gives it back.

use crate::base::clock::lock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// One place in a line: at most one thread waits.
#[derive(Debug, Default)]
pub(super) struct Line(Arc<Desk>);

#[derive(Debug, Default)]
struct Desk {
    wait: Mutex<Wait>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Wait {
    /// There is a thread, which waits for the kernel.
    runs: bool,
    /// Somebody waits for the thread.
    wanted: bool,
    got: Option<Locked>,
}

/// The kernel's lock, until this is dropped.
#[derive(Debug)]
pub(super) struct Locked(OwnedFd);

impl Line {
    /// Waits for the exclusive lock on what `open` opens, for `patience` at most. `open` must open
    /// it anew: descriptors that were copied from each other share their lock.
    ///
    /// # Errors
    /// [`Errno::WOULDBLOCK`] if the lock did not come in time; any other error proves nothing.
    pub(super) fn wait(
        &self,
        open: impl FnOnce() -> Result<OwnedFd>,
        patience: Duration,
    ) -> Result<Locked> {
        let mut wait = lock(&self.0.wait);
        // The thread of a call that gave up may still wait; it has the better place.
        if !wait.runs {
            let fd = open()?;
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked(fd)),
                Err(Errno::WOULDBLOCK) if !patience.is_zero() => {}
                Err(error) => return Err(error),
            }
            let desk = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("fairlock-line".into());
            thread.spawn(move || desk.wait(fd)).map_err(|_| Errno::AGAIN)?;
            wait.runs = true;
        }
        wait.wanted = true;
        let waited = self
            .0
            .called
            .wait_timeout_while(wait, patience, |wait| wait.runs && wait.got.is_none());
        let (mut wait, _) = waited.unwrap_or_else(PoisonError::into_inner);
        wait.wanted = false;
        wait.got.take().ok_or(Errno::WOULDBLOCK)
    }
}

impl Desk {
    fn wait(&self, fd: OwnedFd) {
        let got = loop {
            match flock(&fd, FlockOperation::LockExclusive) {
                Ok(()) => break Some(Locked(fd)),
                Err(Errno::INTR) => {}
                Err(_) => break None,
            }
        };
        let mut wait = lock(&self.wait);
        wait.runs = false;
        if wait.wanted {
            wait.got = got;
        }
        drop(wait);
        self.called.notify_one();
    }
}

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A forked child may have a copy of the descriptor, which would keep the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_testkit::tempdir::TempDir;
    use std::sync::mpsc;
    use std::thread;

    /// Bound for what must happen.
    const SOON: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(20);

    /// Each gets the lock in its turn. A call that gave up keeps nobody waiting; the next one gets
    /// the place that its thread has.
    #[test]
    fn who_gave_up_keeps_nobody_waiting() {
        let dir = TempDir::new();
        let path = dir.path().join("line");
        let open = || Ok(OwnedFd::from(std::fs::File::create(&path).unwrap()));
        let lines: Vec<Line> = (0..3).map(|_| Line::default()).collect();
        let first = lines[0].wait(open, Duration::ZERO).unwrap();
        assert_eq!(lines[1].wait(open, Duration::ZERO).err(), Some(Errno::WOULDBLOCK));
        assert!(!lock(&lines[1].0.wait).runs, "it did not wait");
        for _ in 0..3 {
            assert_eq!(lines[1].wait(open, SHORT).err(), Some(Errno::WOULDBLOCK));
            assert!(lock(&lines[1].0.wait).runs, "one thread waits for all three calls");
        }
        let (got, gets) = mpsc::channel();
        thread::scope(|scope| {
            let last = &lines[2];
            let waits = scope.spawn(move || {
                let locked = last.wait(open, SOON).unwrap();
                got.send(()).unwrap();
                locked
            });
            assert!(gets.recv_timeout(SHORT).is_err(), "two have the lock");
            drop(first);
            // Behind the thread of the one that gave up.
            gets.recv_timeout(SOON).unwrap();
            drop(waits.join().unwrap());
        });
        drop(lines[1].wait(open, SOON).unwrap());
    }
}
