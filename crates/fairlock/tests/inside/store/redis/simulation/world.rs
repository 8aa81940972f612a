//! Everything outside the clients: network, server, clock and randomness of one run.

use super::super::keys::Publishing;
use super::super::script::{self, By};
use super::oracle::Oracle;
use super::server::{Conn, Output, Server};
use super::wire::{End, Pipe, Stream};
use crate::base::clock::lock;
use crate::state::hold::Hold;
use fairlock_core::{ClientId, Kind, LockName, Model, Op, Rules};
use fairlock_testkit::resp::{self, Value};
use fairlock_testkit::rng::Rng;
use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The server's clock at the beginning of a run.
pub(super) const START_MS: u64 = 1_700_000_000_000;

/// The prefix of a client's host name, before its number.
const HOST: &str = "client-";

thread_local! {
    /// The world of the run on this thread.
    static HERE: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// A new connection for the client that knows its server by this name; `None` outside a simulation.
pub(crate) fn stream_to(
    host: &str,
) -> Option<impl Future<Output = io::Result<Stream>> + Send + use<>> {
    let world = HERE.with_borrow(Clone::clone)?;
    let peer = host.strip_prefix(HOST)?.parse().ok()?;
    Some(async move { world.connect(peer).await })
}

/// Whether the name belongs to a simulated server.
pub(crate) fn is_simulated(host: &str) -> bool {
    host.starts_with(HOST) && HERE.with_borrow(Option::is_some)
}

/// The name by which a client knows the server.
pub(super) fn host(peer: usize) -> String {
    format!("{HOST}{peer}")
}

pub(super) struct World {
    state: Mutex<State>,
    /// Notified when something is reachable again.
    changed: Notify,
}

pub(super) struct State {
    pub(super) rng: Rng,
    began: Instant,
    /// By how much the server's clock has been set, in milliseconds.
    pub(super) clock_ms: i64,
    pub(super) peers: Vec<Peer>,
    pub(super) server: Server,
    pub(super) oracle: Oracle,
    next_conn: u64,
}

/// The faults of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Nothing from it reaches the server.
    pub(super) mute: bool,
    /// Nothing from the server reaches it.
    pub(super) deaf: bool,
    /// Its machine is gone.
    pub(super) dead: bool,
    /// The longest delay of its bytes, in milliseconds.
    pub(super) slow_ms: u64,
    /// How many replies will be lost, with the connection, after the call was carried out.
    pub(super) lose_replies: u32,
    pub(super) swallow_messages: bool,
    pub(super) repeat_messages: bool,
    /// The tasks of its applications.
    pub(super) tasks: Vec<AbortHandle>,
}

impl World {
    /// Must be called in the paused runtime of the run.
    pub(super) fn begin(seed: u64, replay: bool) -> Arc<Self> {
        let began = Instant::now();
        let mut oracle = Oracle::default();
        oracle.begin(began, replay);
        let state = State {
            rng: Rng::new(seed),
            began,
            clock_ms: 0,
            peers: Vec::new(),
            server: Server::default(),
            oracle,
            next_conn: 0,
        };
        let world = Arc::new(Self { state: Mutex::new(state), changed: Notify::new() });
        HERE.set(Some(Arc::clone(&world)));
        world
    }

    pub(super) fn end() {
        HERE.set(None);
    }

    /// `act` must neither await anything nor drop a client.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut lock(&self.state))
    }

    /// Registers a client with this id and returns its number.
    pub(super) fn add_client(&self, id: ClientId) -> usize {
        self.with(|state| {
            state.peers.push(Peer::default());
            state.oracle.add_client(id)
        })
    }

    async fn connect(self: Arc<Self>, peer: usize) -> io::Result<Stream> {
        loop {
            let changed = self.changed.notified();
            let reachable = self.with(|state| {
                let peer = &state.peers[peer];
                let way = !peer.mute && !peer.deaf && !peer.dead;
                way && (state.server.is_up || !state.server.is_silent)
            });
            if reachable {
                tokio::time::sleep_until(self.arrival(peer)).await;
                if let Some(stream) = self.accept(peer) {
                    return Ok(stream);
                }
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            changed.await;
        }
    }

    fn accept(self: &Arc<Self>, peer: usize) -> Option<Stream> {
        let delay = |world: &Arc<Self>| {
            let world = Arc::clone(world);
            Box::new(move || world.arrival(peer))
        };
        let (id, to_server, to_client) = self.with(|state| {
            let of = &state.peers[peer];
            if !state.server.is_up || of.dead {
                return None;
            }
            let (to_server, to_client) = (Pipe::new(of.mute), Pipe::new(of.deaf));
            let id = state.next_conn;
            state.next_conn += 1;
            let conn = Conn::new(peer, Arc::clone(&to_server), Arc::clone(&to_client));
            state.server.conns.insert(id, conn);
            Some((id, to_server, to_client))
        })?;
        let (inner, outer) = (Arc::clone(&to_server), Arc::clone(&to_client));
        tokio::spawn(serve(Arc::clone(self), id, Stream::new(inner, outer, delay(self))));
        Some(Stream::new(to_client, to_server, delay(self)))
    }

    /// When bytes sent now arrive.
    fn arrival(&self, peer: usize) -> Instant {
        self.with(|state| state.arrival(peer))
    }

    /// Everybody who is trying to connect tries again.
    pub(super) fn reachable_again(&self) {
        self.changed.notify_waiters();
    }
}

impl State {
    fn arrival(&mut self, peer: usize) -> Instant {
        let slow = self.peers[peer].slow_ms;
        let extra = if slow > 0 { self.rng.below(slow) } else { 0 };
        Instant::now() + Duration::from_millis(1 + self.rng.below(2) + extra)
    }

    /// The server's clock, in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        let since = self.began.elapsed().as_micros() as u64;
        (START_MS * 1_000 + since).saturating_add_signed(self.clock_ms * 1_000)
    }

    pub(super) fn look(&mut self) {
        let now_us = self.now_us();
        self.oracle.look(&self.server, now_us);
        self.compare();
    }

    /// Compares what guards rely on with what the server has.
    fn compare(&mut self) {
        let now_us = self.now_us();
        self.oracle.compare(&self.server, now_us);
    }

    /// An application got a guard.
    pub(super) fn took(&mut self, peer: usize, hold: &Arc<Hold>) {
        self.oracle.took(peer, hold);
        self.compare();
    }

    /// Ends the connections of a client, or of all; with `inboxes` only those of inboxes.
    pub(super) fn reset(&mut self, peer: Option<usize>, inboxes: bool) {
        let now = Instant::now();
        let gone = |conn: &Conn| {
            peer.is_none_or(|peer| peer == conn.peer) && (!inboxes || conn.channels() > 0)
        };
        for conn in self.server.conns.values().filter(|conn| gone(conn)) {
            conn.to_client.end(now, End::Reset);
            conn.to_server.end(now, End::Reset);
        }
        self.server.conns.retain(|_, conn| !gone(conn));
    }

    /// Sets the directions of a client's connections as its `Peer` says.
    pub(super) fn apply(&self, peer: usize) {
        let of = &self.peers[peer];
        for conn in self.server.conns.values().filter(|conn| conn.peer == peer) {
            conn.to_server.hold(of.mute);
            conn.to_client.hold(of.deaf);
        }
    }

    /// The server's process is gone; with `silent` nobody is told.
    pub(super) fn stop_server(&mut self, silent: bool) {
        self.server.is_up = false;
        self.server.is_silent = silent;
        let now = Instant::now();
        for (_, conn) in std::mem::take(&mut self.server.conns) {
            conn.to_server.end(now, End::Reset);
            if silent {
                conn.to_client.hold(true);
            } else {
                conn.to_client.end(now, End::Reset);
            }
        }
    }

    pub(super) fn start_server(&mut self, data: Model) {
        self.server.restart(data);
        self.server.is_up = true;
    }

    /// The client's machine is gone. The server is told if the machine's kernel has the time.
    pub(super) fn kill(&mut self, peer: usize, silent: bool) {
        let due = self.arrival(peer);
        let of = &mut self.peers[peer];
        of.dead = true;
        of.tasks.drain(..).for_each(|task| task.abort());
        for conn in self.server.conns.values().filter(|conn| conn.peer == peer) {
            if silent {
                conn.to_server.hold(true);
            } else {
                conn.to_server.end(due, End::Closed);
            }
            conn.to_client.hold(true);
        }
        self.oracle.crashed(peer);
    }

    /// An operator removes the hold by force, on a connection of its own.
    pub(super) fn force(&mut self, name: &LockName, kind: Kind) {
        /// Not the number of any client.
        const OPERATOR: u64 = u64::MAX;
        let (op, rules) = (Op::Force { kind }, Rules::default());
        let call = script::call(By::Text, &rules, Publishing::Whole, name, &op);
        let words = call.words();
        self.oracle.forced(name);
        let now_us = self.now_us();
        for output in self.server.execute(OPERATOR, now_us, &words, &mut self.oracle) {
            self.put(output);
        }
    }

    fn carry_out(&mut self, id: u64, words: &[Vec<u8>]) {
        let Some(conn) = self.server.conns.get(&id) else { return };
        let peer = conn.peer;
        let now_us = self.now_us();
        // Also before the command: a renewal would hide what was relied on until now.
        self.compare();
        let outputs = self.server.execute(id, now_us, words, &mut self.oracle);
        self.compare();
        let is_call = words[0].starts_with(b"EVAL");
        let loses = is_call && self.peers[peer].lose_replies > 0;
        for output in outputs {
            if !(loses && output.to == id && !output.is_message) {
                self.put(output);
            }
        }
        if loses {
            self.peers[peer].lose_replies -= 1;
            self.oracle.note(|| format!("client {peer} loses a reply"));
            let now = Instant::now();
            if let Some(conn) = self.server.conns.remove(&id) {
                conn.to_client.end(now, End::Reset);
                conn.to_server.end(now, End::Reset);
            }
        }
    }

    fn put(&mut self, output: Output) {
        let Some(peer) = self.server.conns.get(&output.to).map(|conn| conn.peer) else { return };
        let due = self.arrival(peer);
        let of = &self.peers[peer];
        let copies = match output.is_message {
            true if of.swallow_messages => 0,
            true if of.repeat_messages => 2,
            _ => 1,
        };
        if copies == 0 {
            self.oracle.swallowed(peer);
        }
        if copies != 1 {
            self.oracle.note(|| format!("a message to client {peer} comes {copies} times"));
        }
        for _ in 0..copies {
            self.server.conns[&output.to].to_client.send(due, &output.bytes);
        }
    }
}

/// One connection, as the server sees it.
async fn serve(world: Arc<World>, id: u64, mut stream: Stream) {
    /// A panic of the server must not look like a lost connection.
    struct Alive<'a>(&'a World);
    impl Drop for Alive<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.with(|state| state.oracle.violation("the server has panicked".into()));
            }
        }
    }
    let alive = Alive(&world);
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 65_536];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        buffer.extend_from_slice(&chunk[..length]);
        while let Some((command, length)) = resp::parse(&buffer).expect("RESP") {
            buffer.drain(..length);
            let Value::Array(words) = command else { panic!("no command: {command:?}") };
            let words: Vec<_> = words.into_iter().map(bytes).collect();
            alive.0.with(|state| state.carry_out(id, &words));
        }
    }
    world.with(|state| state.server.conns.remove(&id));
}

fn bytes(word: Value) -> Vec<u8> {
    match word {
        Value::Bulk(bytes) => bytes,
        other => panic!("no word of a command: {other:?}"),
    }
}
