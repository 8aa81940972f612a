//! Follows a server's append-only file while it grows.

use super::Input;
use super::effects::Reader;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Polling interval for a file that has not grown.
const LOOK: Duration = Duration::from_millis(2);

/// A thread that follows the log from its start, across the files into which the server splits it.
#[derive(Debug)]
pub(crate) struct Tail {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tail {
    /// Follows the log of the server in this folder.
    pub(crate) fn start(server: &Path, to: Sender<Input>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (folder, seen) = (server.join("appendonlydir"), Arc::clone(&stop));
        let thread = std::thread::spawn(move || follow(&folder, &seen, &to));
        Self { stop, thread: Some(thread) }
    }

    /// Reads to the end, then stops.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the log can be read");
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.end();
    }
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("appendonly.aof.{number}.incr.aof"))
}

fn follow(folder: &Path, stop: &AtomicBool, to: &Sender<Input>) {
    let (mut number, mut reader) = (1, Reader::default());
    let mut file: Option<File> = None;
    let mut buffer = vec![0; 1 << 18];
    loop {
        // Loaded before the read, so that everything written before the stop is read.
        let stopping = stop.load(Ordering::SeqCst);
        let Some(open) = &mut file else {
            file = File::open(path(folder, number)).ok();
            if file.is_none() {
                if stopping {
                    return;
                }
                std::thread::sleep(LOOK);
            }
            continue;
        };
        // Also checked before: the server writes nothing to a file once it has started the next.
        let next = path(folder, number + 1).exists();
        let length = open.read(&mut buffer).expect("the server's log");
        if length > 0 {
            let groups = reader.read(&buffer[..length]).expect("commands in the server's log");
            for commands in groups {
                // At the very end the receiver is gone.
                let _ = to.send(Input::Effects { read_us: wall_us(), commands });
            }
        } else if next {
            reader.forget_the_torn();
            (number, file) = (number + 1, None);
        } else if stopping {
            return;
        } else {
            std::thread::sleep(LOOK);
        }
    }
}

/// The wall clock, which is also the server's unless a fault has moved that.
pub(crate) fn wall_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_micros()).expect("before the year 292 000")
}
