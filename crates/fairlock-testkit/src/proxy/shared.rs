//! What the proxy's controls and its connections share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Script requests kept for a replay: far more than a test replays, and little memory.
const RECORDED_MAX: usize = 4096;

/// How often each fault has taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections accepted and passed on.
    pub connections: u64,
    /// Connections closed as soon as they were accepted.
    pub connections_refused: u64,
    /// Connections cut by any control, on one side or both.
    pub connections_cut: u64,
    /// Requests of any kind that arrived.
    pub requests: u64,
    /// Scripts (EVAL, EVALSHA) that arrived.
    pub scripts: u64,
    /// Scripts that arrived while they were held.
    pub requests_held: u64,
    /// Requests of which only the first bytes were sent on.
    pub requests_cut: u64,
    /// Requests sent once more.
    pub requests_replayed: u64,
    /// Requests that arrived while everything to the server was held back.
    pub requests_black_holed: u64,
    /// Replies to scripts that were lost.
    pub replies_dropped: u64,
    /// Replies and messages that arrived while everything to the clients was held back.
    pub replies_black_holed: u64,
    /// Replies and messages delayed by `delay_to_client`.
    pub replies_delayed: u64,
    /// Bytes that were sent one by one, in both directions.
    pub single_bytes: u64,
    /// Published messages that passed, each counted once.
    pub pushes: u64,
    /// Published messages that were lost.
    pub pushes_swallowed: u64,
    /// Additional copies of published messages.
    pub pushes_duplicated: u64,
    /// Published messages delayed by `delay_pushes`.
    pub pushes_delayed: u64,
}

/// The test's orders. Connections are numbered from 1 in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Controls {
    pub(super) ended: bool,
    /// Where new connections lead, if no longer to the first server.
    pub(super) moved_to: Option<SocketAddr>,
    pub(super) drop_replies: u32,
    pub(super) cut_after_reply_lost: bool,
    pub(super) black_hole_to_server: bool,
    pub(super) black_hole_to_client: bool,
    pub(super) refuse: bool,
    pub(super) delay_to_client: Duration,
    /// If set, one byte at a time, with this pause after each.
    pub(super) byte_pause: Option<Duration>,
    pub(super) swallow_pushes: bool,
    pub(super) duplicate_pushes: u32,
    pub(super) delay_pushes: Duration,
    pub(super) cut_request_at: Option<usize>,
    /// The scripts of connections with smaller numbers are held.
    pub(super) hold_below: u64,
    /// What servers send on connections with smaller numbers is held.
    pub(super) hold_replies_below: u64,
    /// Connections with smaller numbers are cut.
    pub(super) cut_below: u64,
    /// The clients' sides of connections with smaller numbers are cut.
    pub(super) cut_clients_below: u64,
    /// Connections with smaller numbers no longer carry anything, not even their end.
    pub(super) silent_below: u64,
    /// The same, for those that have subscribed.
    pub(super) silent_inboxes_below: u64,
    /// Whether reading from the clients has stopped.
    pub(super) stop_reading: bool,
}

/// A script request, and how its connection started.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) preface: Arc<Vec<Vec<u8>>>,
    pub(super) request: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Shared {
    /// The number of the next connection.
    pub(super) next_connection: AtomicU64,
    controls: watch::Sender<Controls>,
    counts: Mutex<Counts>,
    counted: Condvar,
    recorded: Mutex<VecDeque<Recorded>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            next_connection: AtomicU64::new(1),
            controls: watch::Sender::default(),
            counts: Mutex::default(),
            counted: Condvar::new(),
            recorded: Mutex::default(),
        }
    }
}

impl Shared {
    /// Changes the orders and notifies all connections.
    pub(super) fn control(&self, change: impl FnOnce(&mut Controls)) {
        self.controls.send_modify(change);
    }

    /// Reads the current orders.
    pub(super) fn look<T>(&self, read: impl FnOnce(&Controls) -> T) -> T {
        read(&self.controls.borrow())
    }

    /// Waits until the orders satisfy `wanted`.
    pub(super) async fn until(&self, wanted: impl FnMut(&Controls) -> bool) {
        // Cannot fail: the sender is a field of the `self` borrowed here.
        let _ = self.controls.subscribe().wait_for(wanted).await;
    }

    /// Uses up one of the replies to lose, if any is left: whether the connection is then cut.
    pub(super) fn take_reply_loss(&self) -> Option<bool> {
        let mut taken = None;
        self.controls.send_if_modified(|controls| {
            let left = controls.drop_replies.checked_sub(1);
            taken = left.map(|_| controls.cut_after_reply_lost);
            controls.drop_replies = left.unwrap_or(0);
            taken.is_some()
        });
        taken
    }

    /// Takes the order to cut a request, if there is one.
    pub(super) fn take_request_cut(&self) -> Option<usize> {
        let mut taken = None;
        self.controls.send_if_modified(|controls| {
            taken = controls.cut_request_at.take();
            taken.is_some()
        });
        taken
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.counts));
        self.counted.notify_all();
    }

    pub(super) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// Blocks until the counts satisfy `wanted`, or returns `None` after `timeout`.
    pub(super) fn wait_until(
        &self,
        timeout: Duration,
        wanted: impl Fn(&Counts) -> bool,
    ) -> Option<Counts> {
        let counts = lock(&self.counts);
        let waited = self.counted.wait_timeout_while(counts, timeout, |counts| !wanted(counts));
        let (counts, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        (!timed_out.timed_out()).then_some(*counts)
    }

    pub(super) fn record(&self, recorded: Recorded) {
        let mut all = lock(&self.recorded);
        if all.len() == RECORDED_MAX {
            all.pop_front();
        }
        all.push_back(recorded);
    }

    /// The last `count` recorded requests, oldest first, or all if there are fewer.
    pub(super) fn last_recorded(&self, count: usize) -> Vec<Recorded> {
        let all = lock(&self.recorded);
        all.iter().skip(all.len().saturating_sub(count)).cloned().collect()
    }
}

/// A test that panicked while it held the mutex leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
