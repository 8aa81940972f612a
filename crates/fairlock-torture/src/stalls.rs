//! Detects whether this process ran. If it did not, neither did the proxy in it, and possibly
//! nothing else did.

use crate::log::Input;
use crate::starved;
use fairlock_testkit::history::now_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(20);

/// Shorter stalls are not reported.
const STALL: Duration = Duration::from_millis(50);

/// Threads that report every interval in which this process, or another one of the run, did not
/// run.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

/// Calls `stalled` with the bounds of every interval in which this thread did not run.
pub(crate) fn look(stop: &AtomicBool, mut stalled: impl FnMut(u64, u64)) {
    while !stop.load(Ordering::SeqCst) {
        let from = now_ns();
        std::thread::sleep(STEP);
        let to = now_ns();
        if Duration::from_nanos(to - from) > STEP + STALL {
            stalled(from, to);
        }
    }
}

pub(crate) fn watch(checker: Sender<Input>) -> Watch {
    let stop = Arc::new(AtomicBool::new(false));
    let starved = std::thread::spawn({
        let (stop, checker) = (Arc::clone(&stop), checker.clone());
        move || starved::look(&stop, &checker)
    });
    let seen = Arc::clone(&stop);
    let stalled = std::thread::spawn(move || {
        look(&seen, |from, until| {
            let _ = checker.send(Input::Stalled { from, until });
        });
    });
    Watch { stop, threads: [starved, stalled] }
}

impl Watch {
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("a thread that sleeps");
        }
    }
}
