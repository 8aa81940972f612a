//! A fault proxy between client and server that acts on whole frames.
//!
//! It understands enough of the protocol to know which reply belongs to which request, so that a
//! test can say "the reply to the next script is lost" and mean exactly that. It does what a
//! network can do: bytes of one direction may be late, or never arrive, but never arrive without
//! those before them. When a [`Proxy::black_hole_to_server`] or [`Proxy::hold_requests`] ends, what
//! it held is delivered, as TCP does when a partition heals.

mod connection;
mod frame;
mod shared;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;

pub use self::shared::Counts;
use self::shared::{Recorded, Shared};
use crate::raw::Raw;
use crate::resp::Value;

/// How long [`Proxy::wait_until`] waits: longer than any fault takes, shorter than a hung test run.
const WAIT_WITHIN: Duration = Duration::from_secs(10);

/// A running proxy; it ends, with all its connections, on drop.
///
/// It runs on a thread of its own, so that a test may block while it works. All controls take
/// effect at once, also on connections that are already open.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    upstream: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy on a free port of 127.0.0.1 for the server at `upstream`.
    ///
    /// # Panics
    ///
    /// If the system has no port or no thread left.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let addr = listener.local_addr().expect("the port the listener has");
        let shared = Arc::new(Shared::default());
        let run = {
            let shared = Arc::clone(&shared);
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            move || runtime.block_on(connection::accept(shared, listener, upstream))
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(run).expect("a thread");
        Self { addr, upstream, shared, thread: Some(thread) }
    }

    /// `redis://127.0.0.1:PORT/`
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on new connections lead to another server, as an address does after a failover.
    /// Open ones stay: see [`Proxy::cut_all`].
    pub fn move_to(&self, upstream: SocketAddr) {
        self.shared.control(|controls| controls.moved_to = Some(upstream));
    }

    /// How often each fault has taken effect so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Waits until the counts satisfy `wanted`.
    ///
    /// # Panics
    ///
    /// If they do not within ten seconds.
    #[track_caller]
    pub fn wait_until(&self, wanted: impl Fn(&Counts) -> bool) -> Counts {
        self.shared
            .wait_until(WAIT_WITHIN, wanted)
            .unwrap_or_else(|| panic!("not within {WAIT_WITHIN:?}, stuck at {:?}", self.counts()))
    }

    /// Loses the replies to the next `count` scripts (EVAL, EVALSHA) that the server executes. A
    /// script answered with `NOSCRIPT` was not executed and is not counted.
    ///
    /// Nothing more reaches the client on such a connection: a network that loses a reply also
    /// loses what follows it. See [`Proxy::cut_after_reply_lost`].
    pub fn drop_replies(&self, count: u32) {
        self.shared.control(|controls| controls.drop_replies = count);
    }

    /// Whether a connection that lost a reply is cut at once. Otherwise it stays open and silent.
    pub fn cut_after_reply_lost(&self, cut: bool) {
        self.shared.control(|controls| controls.cut_after_reply_lost = cut);
    }

    /// Holds back everything sent to the server, while connections stay up.
    pub fn black_hole_to_server(&self, on: bool) {
        self.shared.control(|controls| controls.black_hole_to_server = on);
    }

    /// Holds back everything sent to the clients, while connections stay up.
    pub fn black_hole_to_client(&self, on: bool) {
        self.shared.control(|controls| controls.black_hole_to_client = on);
    }

    /// Silences the connections that exist now, for good and in both directions: neither bytes nor
    /// their end pass any more, as behind a router that has forgotten them. New connections pass.
    pub fn silence_open(&self) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.silent_below = next);
    }

    /// As [`Proxy::silence_open`], but only the connections that have subscribed to something.
    pub fn silence_inboxes(&self) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.silent_inboxes_below = next);
    }

    /// Stops reading from the clients, so that their buffers fill and a write does not finish. On
    /// each connection, one request for which a read is already waiting still passes.
    pub fn stop_reading(&self, on: bool) {
        self.shared.control(|controls| controls.stop_reading = on);
    }

    /// Cuts all connections, on both sides; what was held for the server is lost.
    pub fn cut_all(&self) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.cut_below = next);
    }

    /// Cuts the clients' side of all connections. What the clients sent before still reaches the
    /// server, now or when it is released: [`Proxy::hold_requests`] and a black hole outlast this.
    pub fn cut_clients(&self) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.cut_clients_below = next);
    }

    /// Closes new connections as soon as they are accepted.
    pub fn refuse(&self, on: bool) {
        self.shared.control(|controls| controls.refuse = on);
    }

    /// Delays everything sent to the clients.
    pub fn delay_to_client(&self, delay: Duration) {
        self.shared.control(|controls| controls.delay_to_client = delay);
    }

    /// Sends everything byte by byte, in both directions, each byte in a segment of its own and
    /// about this long after the one before; `None` sends what is available.
    pub fn byte_by_byte(&self, pause: Option<Duration>) {
        self.shared.control(|controls| controls.byte_pause = pause);
    }

    /// Loses published messages (`message`, `pmessage`, `smessage`), not the confirmations of
    /// subscriptions.
    pub fn swallow_pushes(&self, on: bool) {
        self.shared.control(|controls| controls.swallow_pushes = on);
    }

    /// Delivers `copies` additional copies of each published message.
    pub fn duplicate_pushes(&self, copies: u32) {
        self.shared.control(|controls| controls.duplicate_pushes = copies);
    }

    /// Delays only published messages; replies on the same connection overtake them.
    pub fn delay_pushes(&self, delay: Duration) {
        self.shared.control(|controls| controls.delay_pushes = delay);
    }

    /// Holds the scripts of the connections that exist now (and what follows them there); `false`
    /// releases them, even if their client has closed by then. New connections pass.
    pub fn hold_requests(&self, on: bool) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.hold_below = if on { next } else { 0 });
    }

    /// Holds what the server sends on the connections that exist now; `false` delivers it, as a slow
    /// network does. New connections pass.
    pub fn hold_replies(&self, on: bool) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.shared.control(|controls| controls.hold_replies_below = if on { next } else { 0 });
    }

    /// Forwards only the first `bytes` of the next script's request, then cuts its connection.
    pub fn cut_request_at(&self, bytes: usize) {
        self.shared.control(|controls| controls.cut_request_at = Some(bytes));
    }

    /// Sends the last `count` script requests to the server once more, oldest first, each over a
    /// new connection that starts like the recorded one (HELLO, AUTH, SELECT). Returns the replies,
    /// which the clients do not see.
    ///
    /// # Panics
    ///
    /// If fewer were recorded, or the server does not answer.
    #[track_caller]
    pub fn replay(&self, count: usize) -> Vec<Value> {
        let recorded = self.shared.last_recorded(count);
        assert_eq!(recorded.len(), count, "fewer scripts passed than are to be replayed");
        let replay = |Recorded { preface, request }: &Recorded| {
            let mut raw = Raw::connect(self.upstream);
            for frame in preface.iter() {
                raw.send_bytes(frame).and_then(|()| raw.read()).expect("the preface's reply");
            }
            let reply = raw.send_bytes(request).and_then(|()| raw.read()).expect("a reply");
            self.shared.count(|counts| counts.requests_replayed += 1);
            reply
        };
        recorded.iter().map(replay).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.control(|controls| controls.ended = true);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its message is on stderr; a second panic here would abort the
            // test run.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
