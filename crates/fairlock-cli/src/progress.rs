//! The line that shows a person how the wait goes, or a bench. Scripts never see it.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use fairlock::{Lock, LockStatus};
use rustix::termios;
use tokio::time;

use crate::duration;
use crate::message;

/// How often the line is renewed; each time costs the server one read-only call.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long one look at the queue may take before the line does without it.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Width assumed when the terminal does not tell.
const DEFAULT_WIDTH: usize = 80;

/// Shows the place in the queue, the holder and the time waited, until dropped.
pub(crate) async fn show(lock: &Lock, name: &OsStr) -> Infallible {
    if !io::stderr().is_terminal() {
        return future::pending().await;
    }
    let started = Instant::now();
    let line = Line;
    let name = message::printable(name);
    loop {
        // Sleep first: a lock that is free needs no line.
        time::sleep(INTERVAL).await;
        let status = time::timeout(INSPECT_TIMEOUT, lock.inspect()).await;
        let status = status.ok().and_then(Result::ok);
        line.write(&describe(&name, status.as_ref(), started.elapsed()));
    }
}

fn describe(name: &str, status: Option<&LockStatus>, waited: Duration) -> String {
    let mut text = format!("fairlock: {name}: waiting for {}", duration::human(waited));
    let Some(status) = status else {
        text.push_str(", the store does not answer");
        return text;
    };
    if let Some(place) = status.queue.iter().position(|waiter| waiter.ours) {
        text.push_str(&format!(", {} of {} in the queue", place + 1, status.queue_len));
    }
    if let Some(holder) = &status.holder {
        text.push_str(&format!(", held by {}", holder.owner));
    }
    text
}

/// One line of the terminal that is rewritten in place and wiped at the end.
pub(crate) struct Line;

impl Line {
    pub(crate) fn write(&self, text: &str) {
        let width = termios::tcgetwinsize(io::stderr())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|&width| width > 0)
            .unwrap_or(DEFAULT_WIDTH);
        // A line that wraps could not be rewritten.
        let fitting: String = text.chars().take(width - 1).collect();
        let _ = write!(io::stderr(), "\r\x1b[K{fitting}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
