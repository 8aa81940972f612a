//! Shows the progress of a wait: on a terminal in one line that is rewritten in place, elsewhere in occasional
//! lines for a log.

use std::convert::Infallible;
use std::future;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use fairlock::{ClientId, LockStatus};
use tokio::time;

use super::args::Run;
use super::whom;
use crate::base::duration;
use crate::base::line::{Line, width};
use crate::base::message;
use crate::locks::handle::Handle;
use crate::locks::text::{in_line, in_short};

/// How often the line on a terminal is rewritten; each time costs the server one read-only call.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a look at the queue may take before the line is written without it.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Since when a client that is not in the queue, or finds the lock free, may have been refused: no hand-over takes so long.
const REFUSED: Duration = Duration::from_secs(2);

/// When the first line is written without a terminal: a shorter wait needs none. The next lines come after twice,
/// four times this, and so on, so a wait of a day leaves fourteen lines in a log.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// Shows the place in the queue, the holder and the time waited, until dropped.
pub(super) async fn show(lock: &Handle, client: ClientId, args: &Run) -> Infallible {
    let name = message::printable(&args.name);
    let waiting = Waiting { lock, client, args, name, began: Instant::now() };
    if args.quiet {
        future::pending().await
    } else if args.verbose {
        waiting.tell_all().await
    } else if io::stderr().is_terminal() {
        waiting.rewrite().await
    } else {
        waiting.tell().await
    }
}

/// What the line is made of.
struct Looked {
    /// `None` if the store does not answer.
    status: Option<LockStatus>,
    /// Of several locks, which one it is, before what is said of it.
    which: Option<String>,
    /// The store seems to refuse the request.
    refused: bool,
}

struct Waiting<'a> {
    lock: &'a Handle,
    client: ClientId,
    args: &'a Run,
    name: String,
    began: Instant,
}

impl Waiting<'_> {
    async fn rewrite(&self) -> Infallible {
        let line = Line;
        loop {
            // Sleep first: for a free lock no line is needed.
            time::sleep(INTERVAL).await;
            let looked = self.look().await;
            line.write(&fit(&self.parts(&looked, true), width()));
        }
    }

    /// Writes lines at growing intervals.
    async fn tell(&self) -> Infallible {
        let mut at = FIRST_LINE;
        loop {
            time::sleep(at.saturating_sub(self.began.elapsed())).await;
            let looked = self.look().await;
            message::report(&self.parts(&looked, false).join(", "));
            at *= 2;
        }
    }

    /// As [`tell`](Self::tell), with an additional line for each change.
    async fn tell_all(&self) -> Infallible {
        let mut at = FIRST_LINE;
        let mut said = (Vec::new(), false);
        loop {
            time::sleep(INTERVAL).await;
            let looked = self.look().await;
            let seen = looked.status.as_ref().map(|status| self.standing(status));
            let seen = (seen.unwrap_or_default(), looked.refused);
            if seen != said || self.began.elapsed() >= at {
                message::report(&self.parts(&looked, false).join(", "));
                while at <= self.began.elapsed() {
                    at *= 2;
                }
                said = seen;
            }
        }
    }

    /// Looks at the lock. Whether the store refuses requests is decided by two looks: a process that stood still was
    /// passed over meanwhile, and is back in the queue with the second one.
    async fn look(&self) -> Looked {
        let look = async || {
            let look = self.lock.inspect_busy(usize::MAX);
            let (at, status) = time::timeout(INSPECT_TIMEOUT, look).await.ok()?.ok()?;
            Some((self.args.one_of_several(at), status))
        };
        let is_outside = |status: &Option<_>| status.as_ref().is_some_and(|it| self.is_outside(it));
        let (which, status) = look().await.unzip();
        if !is_outside(&status) {
            return Looked { which: which.flatten(), status, refused: false };
        }
        time::sleep(INTERVAL).await;
        let (which, status) = look().await.unzip();
        Looked { refused: is_outside(&status), which: which.flatten(), status }
    }

    /// The parts of a line that change when clients come or go, but not with time alone.
    fn standing(&self, status: &LockStatus) -> Vec<String> {
        let holders = status.holders.iter().map(|holder| holder.owner.to_string());
        whom::place(status, self.client).into_iter().chain(holders).collect()
    }

    /// Whether the client is not in the queue although it has waited for a while, or the lock is free. A store that cannot
    /// write answers looks all the same, and what it refuses is tried again until the time is over.
    fn is_outside(&self, status: &LockStatus) -> bool {
        let is_free = status.holding == 0 && status.queue_len == 0;
        let is_listed = status.queue.len() == status.queue_len;
        self.began.elapsed() >= REFUSED
            && (is_free
                || (self.lock.has_queue()
                    && is_listed
                    && whom::place(status, self.client).is_none()))
    }

    /// The parts of the line, the most important first. `narrow`: for a terminal, which may have 80 columns.
    fn parts(&self, Looked { status, which, refused }: &Looked, narrow: bool) -> Vec<String> {
        let waited = duration::human(self.began.elapsed());
        let waiting = if narrow { "waiting" } else { "waiting for" };
        let mut parts = vec![format!("{}: {waiting} {waited}", self.name)];
        let Some(status) = status else {
            parts.push("the store does not answer".to_owned());
            return parts;
        };
        if *refused {
            let what =
                if status.holding == 0 { "free, and not granted" } else { "not in the queue" };
            parts.push(format!("{what}: the store may refuse writes (memory or disk full?)"));
        }
        let kind = Some(self.lock.kind());
        if narrow {
            parts.extend(whom::short_place(status, self.client));
            let mut held = in_short(kind, status);
            if let (Some(which), Some(first)) = (which, held.first_mut()) {
                first.insert_str(0, which);
            }
            parts.extend(held);
        } else {
            parts.extend(whom::place(status, self.client));
            let which = which.as_deref().unwrap_or_default();
            parts.extend(in_line(kind, status).map(|held| format!("{which}{held}")));
        }
        parts.extend(whom::predecessor(status, self.client));
        parts
    }
}

/// As many of the parts as fit into `width`; the last one may be cut, which is marked.
fn fit(parts: &[String], width: usize) -> String {
    /// Least length of a part that is cut.
    const CUT_MIN: usize = 12;
    let mut line = "fairlock".to_owned();
    let mut used = line.chars().count();
    for (at, part) in parts.iter().enumerate() {
        let separator = if at == 0 { ": " } else { ", " };
        let (length, left) = (part.chars().count(), width.saturating_sub(used + separator.len()));
        if length > left {
            if left > CUT_MIN || at == 0 {
                line.push_str(separator);
                line.extend(part.chars().take(left.saturating_sub(1)));
                line.push('…');
            }
            break;
        }
        line.push_str(separator);
        line.push_str(part);
        used += separator.len() + length;
    }
    line.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d25_what_does_not_fit_is_left_out_from_the_end() {
        let parts =
            ["x: waiting for 12s", "2 of 5 in the queue", "held by ann@web-1, pid 42, nightly"]
                .map(str::to_owned);
        for (width, line) in [
            (
                200,
                "fairlock: x: waiting for 12s, 2 of 5 in the queue, held by ann@web-1, pid 42, nightly",
            ),
            (70, "fairlock: x: waiting for 12s, 2 of 5 in the queue, held by ann@web-1,…"),
            (60, "fairlock: x: waiting for 12s, 2 of 5 in the queue"),
            (40, "fairlock: x: waiting for 12s"),
            (20, "fairlock: x: waitin…"),
            (5, "fairl"),
            (0, ""),
        ] {
            assert_eq!(fit(&parts, width), line, "{width}");
            assert!(fit(&parts, width).chars().count() <= width);
        }
    }
}
