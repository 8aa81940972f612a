//! Whether this process ran: where it did not, neither did the proxy in it, nor perhaps anything else.

use crate::log::Input;
use fairlock_testkit::history::now_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(20);

/// Shorter ones are not told.
const STALL: Duration = Duration::from_millis(50);

/// A thread that tells every time in which it was not run.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Calls this with the ends of every time in which it was not called.
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

pub(crate) fn watch(judge: Sender<Input>) -> Watch {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        look(&seen, |from, until| {
            let _ = judge.send(Input::Stalled { from, until });
        });
    });
    Watch { stop, thread }
}

impl Watch {
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("a thread that sleeps");
    }
}
