//! One connection through the proxy: four pumps, two for each direction.
//!
//! ```text
//! client -> requests_in -> queue -> requests_out -> server
//! client <- replies_out <- queues <- replies_in  <- server
//! ```
//!
//! The queues let the proxy keep reading (and so notice that a side has closed) while it holds what
//! it has read. The side towards the server outlives the client's until the queue is delivered.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::frame::{Frame, FrameReader, Request, Response};
use super::shared::{Controls, Recorded, Shared};

/// Accepts connections until the proxy ends; its runtime ends them with it.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener, upstream: SocketAddr) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a non-blocking listener");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.until(|controls| controls.ended) => return,
        };
        // A client that has gone before it was accepted does not matter.
        let Ok((client, _)) = accepted else { continue };
        if shared.look(|controls| controls.refuse) {
            drop(client);
            shared.count(|counts| counts.connections_refused += 1);
            continue;
        }
        let upstream = shared.look(|controls| controls.moved_to).unwrap_or(upstream);
        let number = shared.next_connection.fetch_add(1, Ordering::SeqCst);
        let connection = Connection {
            number,
            shared: Arc::clone(&shared),
            unanswered: StdMutex::default(),
            subscribed: AtomicBool::new(false),
        };
        tokio::spawn(async move { connection.run(client, upstream).await });
    }
}

struct Connection {
    number: u64,
    shared: Arc<Shared>,
    /// Requests passed on and not yet answered, oldest first, without subscriptions.
    unanswered: StdMutex<VecDeque<Request>>,
    /// Whether a subscription was ever requested.
    subscribed: AtomicBool,
}

/// What to do on the client's side, in order.
enum Outgoing {
    /// Write bytes, not before they are due.
    Bytes { due: Instant, bytes: Vec<u8> },
    /// Cut the connection, after everything that was queued before.
    Cut,
}

/// A pump ended because a fault cuts the whole connection. A pump that ends by itself returns `Ok`,
/// so that the others continue.
struct Cut;

impl Connection {
    async fn run(&self, client: TcpStream, upstream: SocketAddr) {
        // Without a server the client is simply closed.
        let Ok(server) = TcpStream::connect(upstream).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        self.shared.count(|counts| counts.connections += 1);

        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        let (requests, requests_queue) = unbounded_channel();
        let (replies, replies_queue) = unbounded_channel();
        let (late_pushes, late_pushes_queue) = unbounded_channel();

        let client_side = async {
            tokio::select! {
                ended = async { tokio::try_join!(
                    self.requests_in(client_read, requests),
                    self.replies_out(client_write, replies_queue, late_pushes_queue),
                ) } => ended.map(drop),
                () = self.shared.until(|controls| controls.cut_clients_below > self.number) => {
                    self.count_cut();
                    Ok(())
                }
            }
        };
        let server_side = async {
            tokio::try_join!(
                self.requests_out(server_write, requests_queue),
                self.replies_in(server_read, replies, late_pushes),
            )
        };
        tokio::select! {
            ended = async { tokio::try_join!(client_side, server_side) } => {
                if let Err(Cut) = ended {
                    self.count_cut();
                }
            }
            () = self.shared.until(|controls| controls.cut_below > self.number) => self.count_cut(),
        }
    }

    /// Reads requests from the client until it closes.
    async fn requests_in(
        &self,
        client: OwnedReadHalf,
        requests: UnboundedSender<Frame>,
    ) -> Result<(), Cut> {
        let mut frames = FrameReader::new(client);
        let mut preface = Arc::new(Vec::new());
        loop {
            self.shared.until(|controls| !controls.stop_reading).await;
            let Some(frame) = frames.next().await else { break };
            match frame.request() {
                Request::Preface => Arc::make_mut(&mut preface).push(frame.bytes.clone()),
                Request::Script => {
                    let recorded =
                        Recorded { preface: Arc::clone(&preface), request: frame.bytes.clone() };
                    self.shared.record(recorded);
                    let held = self.shared.look(|controls| controls.hold_below > self.number);
                    self.shared.count(|counts| {
                        counts.scripts += 1;
                        counts.requests_held += u64::from(held);
                    });
                }
                Request::Subscription => self.subscribed.store(true, Ordering::SeqCst),
                Request::Other => {}
            }
            let black_holed = self
                .shared
                .look(|controls| controls.black_hole_to_server || self.is_silent(controls));
            self.shared.count(|counts| {
                counts.requests += 1;
                counts.requests_black_holed += u64::from(black_holed);
            });
            // Fails if the server is gone; the client learns that from its own side.
            let _ = requests.send(frame);
        }
        Ok(())
    }

    /// Passes requests on to the server, and closes when the client has closed and all are sent.
    async fn requests_out(
        &self,
        mut server: OwnedWriteHalf,
        mut requests: UnboundedReceiver<Frame>,
    ) -> Result<(), Cut> {
        while let Some(frame) = requests.recv().await {
            let request = frame.request();
            let is_script = request == Request::Script;
            self.shared
                .until(|controls| {
                    let held = is_script && controls.hold_below > self.number;
                    !held && !controls.black_hole_to_server && !self.is_silent(controls)
                })
                .await;
            if let Some(bytes) = is_script.then(|| self.shared.take_request_cut()).flatten() {
                let part = &frame.bytes[..bytes.min(frame.bytes.len())];
                // If the server is gone, it got even less of it.
                let _ = server.write_all(part).await;
                self.shared.count(|counts| counts.requests_cut += 1);
                return Err(Cut);
            }
            if request != Request::Subscription {
                self.unanswered().push_back(request);
            }
            if self.carry(&mut server, &frame.bytes).await.is_err() {
                break;
            }
        }
        // The end of the client's stream is held back like its bytes.
        self.shared
            .until(|controls| !controls.black_hole_to_server && !self.is_silent(controls))
            .await;
        let _ = server.shutdown().await;
        Ok(())
    }

    /// Reads what the server sends and decides what happens to it.
    async fn replies_in(
        &self,
        server: OwnedReadHalf,
        replies: UnboundedSender<Outgoing>,
        late_pushes: UnboundedSender<Outgoing>,
    ) -> Result<(), Cut> {
        let mut frames = FrameReader::new(server);
        let mut has_lost_a_reply = false;
        while let Some(frame) = frames.next().await {
            let response = frame.response(self.subscribed.load(Ordering::SeqCst));
            let request = match response {
                Response::Reply { .. } => self.unanswered().pop_front(),
                Response::Message | Response::OtherPush => None,
            };
            let is_executed_script =
                response == Response::Reply { executed: true } && request == Some(Request::Script);
            if is_executed_script && let Some(cut) = self.shared.take_reply_loss() {
                self.shared.count(|counts| counts.replies_dropped += 1);
                has_lost_a_reply = true;
                if cut {
                    // Fails if the client is gone already.
                    let _ = replies.send(Outgoing::Cut);
                }
            }
            if has_lost_a_reply {
                continue;
            }
            self.pass_on(frame, response, &replies, &late_pushes);
        }
        Ok(())
    }

    /// Queues a frame for the client: once, never or several times, and when it is due.
    fn pass_on(
        &self,
        frame: Frame,
        response: Response,
        replies: &UnboundedSender<Outgoing>,
        late_pushes: &UnboundedSender<Outgoing>,
    ) {
        let (delay, push_delay, swallow, copies, black_holed) = self.shared.look(|controls| {
            (
                controls.delay_to_client,
                controls.delay_pushes,
                controls.swallow_pushes,
                controls.duplicate_pushes,
                controls.black_hole_to_client || self.is_silent(controls),
            )
        });
        let is_message = response == Response::Message;
        if is_message && swallow {
            self.shared.count(|counts| counts.pushes_swallowed += 1);
            return;
        }
        let copies = if is_message { copies } else { 0 };
        let is_late = is_message && !push_delay.is_zero();
        self.shared.count(|counts| {
            counts.pushes += u64::from(is_message);
            counts.pushes_duplicated += u64::from(copies);
            counts.pushes_delayed += u64::from(is_late);
            counts.replies_delayed += u64::from(!delay.is_zero());
            counts.replies_black_holed += u64::from(black_holed);
        });
        let (queue, delay) =
            if is_late { (late_pushes, delay + push_delay) } else { (replies, delay) };
        let due = Instant::now() + delay;
        for _ in 0..=copies {
            // Fails if the client is gone, which does not matter then.
            let _ = queue.send(Outgoing::Bytes { due, bytes: frame.bytes.clone() });
        }
    }

    /// Delivers to the client, and closes when the server has closed and everything is sent.
    async fn replies_out(
        &self,
        client: OwnedWriteHalf,
        replies: UnboundedReceiver<Outgoing>,
        late_pushes: UnboundedReceiver<Outgoing>,
    ) -> Result<(), Cut> {
        let client = Mutex::new(client);
        tokio::try_join!(self.deliver(&client, replies), self.deliver(&client, late_pushes))?;
        self.passes_to_client().await;
        let _ = client.into_inner().shutdown().await;
        Ok(())
    }

    async fn deliver(
        &self,
        client: &Mutex<OwnedWriteHalf>,
        mut queue: UnboundedReceiver<Outgoing>,
    ) -> Result<(), Cut> {
        while let Some(outgoing) = queue.recv().await {
            let Outgoing::Bytes { due, bytes } = outgoing else { return Err(Cut) };
            sleep_until(due).await;
            self.passes_to_client().await;
            if self.carry(&mut *client.lock().await, &bytes).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Writes all bytes: at once, or one by one.
    async fn carry(&self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
        // Counted from the beginning: a late timer must not make the link slower.
        let mut due = Instant::now();
        for (at, byte) in bytes.iter().enumerate() {
            let Some(pause) = self.shared.look(|controls| controls.byte_pause) else {
                return to.write_all(&bytes[at..]).await;
            };
            // Counted before it is written: a client that has the last byte finds all of them
            // counted.
            self.shared.count(|counts| counts.single_bytes += 1);
            to.write_all(&[*byte]).await?;
            due += pause;
            sleep_until(due).await;
        }
        Ok(())
    }

    async fn passes_to_client(&self) {
        self.shared
            .until(|controls| {
                let held = controls.hold_replies_below > self.number;
                !held && !controls.black_hole_to_client && !self.is_silent(controls)
            })
            .await;
    }

    fn is_silent(&self, controls: &Controls) -> bool {
        let is_inbox = self.subscribed.load(Ordering::SeqCst);
        self.number < controls.silent_below
            || is_inbox && self.number < controls.silent_inboxes_below
    }

    fn count_cut(&self) {
        self.shared.count(|counts| counts.connections_cut += 1);
    }

    fn unanswered(&self) -> std::sync::MutexGuard<'_, VecDeque<Request>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
