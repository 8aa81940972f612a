//! A client's thread that may block. It runs one call at a time, in order.
//!
//! It starts when there is work, and ends after a while without any. The runtime's own blocking
//! threads are unsuitable: if none can be started, the runtime panics and keeps the call forever.

use crate::base::clock::lock;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A thread costs some 50 us to start, and some memory to keep.
const KEPT: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// See the module. Jobs that have not begun are dropped with it.
#[derive(Default)]
pub(super) struct Hand(Arc<Desk>);

#[derive(Default)]
struct Desk {
    work: Mutex<Work>,
    called: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    /// There is a thread.
    runs: bool,
    closed: bool,
    /// No thread can be started.
    #[cfg(test)]
    none: bool,
}

impl Hand {
    /// Runs `job` after all earlier ones. A job that panics does not affect the others.
    ///
    /// # Errors
    /// No thread can be started, and there is none; the job is dropped.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut work = lock(&self.0.work);
        if !work.runs {
            #[cfg(test)]
            if work.none {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let desk = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("fairlock-file".into());
            started.spawn(move || desk.work())?;
            work.runs = true;
        }
        work.jobs.push_back(Box::new(job));
        drop(work);
        self.0.called.notify_one();
        Ok(())
    }

    /// Makes starting a thread fail, or work again.
    #[cfg(test)]
    pub(super) fn tie(&self, none: bool) {
        lock(&self.0.work).none = none;
    }
}

impl Desk {
    fn work(&self) {
        let mut work = lock(&self.work);
        loop {
            if work.closed {
                return;
            }
            if let Some(job) = work.jobs.pop_front() {
                drop(work);
                // If it panics, its caller learns that from what is dropped.
                let _ = catch_unwind(AssertUnwindSafe(job));
                work = lock(&self.work);
                continue;
            }
            let waited = self
                .called
                .wait_timeout_while(work, KEPT, |work| work.jobs.is_empty() && !work.closed);
            let (still, idle) = waited.unwrap_or_else(PoisonError::into_inner);
            work = still;
            if idle.timed_out() {
                work.runs = false;
                return;
            }
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let mut work = lock(&self.0.work);
        work.closed = true;
        // Outside the mutex: a job may own things that it shares with others.
        let jobs = std::mem::take(&mut work.jobs);
        drop(work);
        self.0.called.notify_one();
        drop(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Bound for what must happen.
    const SOON: Duration = Duration::from_secs(30);

    /// Jobs run in order. Neither a job that panics nor one that found no thread prevents the next
    /// one.
    #[test]
    fn jobs_are_done_whatever_became_of_the_others() {
        let hand = Hand::default();
        hand.tie(true);
        assert!(hand.run(|| panic!("there is no thread")).is_err());
        hand.tie(false);
        let (done, told) = mpsc::channel();
        for number in 0..10 {
            let done = done.clone();
            let job = move || {
                done.send(number).unwrap();
                assert_ne!(number, 3, "one panics");
            };
            hand.run(job).unwrap();
        }
        for number in 0..10 {
            assert_eq!(told.recv_timeout(SOON), Ok(number));
        }
        // The thread ends when there is no work, and the next job gets another one.
        let began = std::time::Instant::now();
        while lock(&hand.0.work).runs {
            assert!(began.elapsed() < SOON, "the thread stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        hand.run(move || done.send(10).unwrap()).unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(10));
    }
}
