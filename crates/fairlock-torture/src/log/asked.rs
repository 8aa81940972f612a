//! Samples how often a server is asked to run a script, several times a second.

use super::Input;
use fairlock_testkit::history::now_ns;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::{self, Value};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

/// The length of a sample: several of them fit between two faults.
const SAMPLE: Duration = Duration::from_millis(250);

/// How long a server may take to answer before it counts as gone.
const ANSWERED: Duration = Duration::from_secs(5);

/// A thread that polls a server's command counts. A server that is gone or was restarted gives no
/// sample.
#[derive(Debug)]
pub(crate) struct Asked {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asked {
    pub(crate) fn start(server: SocketAddr, to: Sender<Input>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || sample(server, &seen, &to));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The panic was already printed, and the run continues without its samples.
            let _ = thread.join();
        }
    }
}

fn sample(server: SocketAddr, stop: &AtomicBool, to: &Sender<Input>) {
    let mut raw = None;
    let mut last: Option<(u64, u64)> = None;
    while !stop.load(Ordering::SeqCst) {
        raw = raw.or_else(|| Raw::try_connect(server).ok());
        let count = raw.as_mut().and_then(count);
        let now = now_ns();
        match (last, count) {
            (Some((from, before)), Some(scripts)) if scripts >= before => {
                // At the very end the receiver is gone.
                let _ = to.send(Input::Asked { from, until: now, scripts: scripts - before });
            }
            (_, None) => raw = None,
            _ => {}
        }
        last = count.map(|scripts| (now, scripts));
        std::thread::park_timeout(SAMPLE);
    }
}

/// The number of scripts since the server started.
fn count(raw: &mut Raw) -> Option<u64> {
    raw.send_bytes(&resp::encode(&["INFO", "commandstats"])).ok()?;
    // The server refuses while it loads its data or runs a script that does not end.
    let Value::Bulk(reply) = raw.read_within(ANSWERED).ok()?? else { return None };
    calls(std::str::from_utf8(&reply).ok()?)
}

fn calls(info: &str) -> Option<u64> {
    let of = |line: &str| {
        let counts = line.strip_prefix("cmdstat_eval")?;
        let (_, counts) = counts.split_once("calls=")?;
        counts.split(',').next()?.parse::<u64>().ok()
    };
    info.starts_with("# Commandstats").then(|| info.lines().filter_map(of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_however_they_are_called() {
        let info = "# Commandstats\r\ncmdstat_get:calls=9,usec=1\r\ncmdstat_eval:calls=3,usec=5\r\n\
                    cmdstat_evalsha:calls=40,usec=5,usec_per_call=2\r\n";
        assert_eq!(calls(info), Some(43));
        assert_eq!(calls("# Commandstats\r\n"), Some(0));
        assert_eq!(calls("loading"), None);
    }
}
