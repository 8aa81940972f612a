//! The simulated server: the core behind the commands that the client sends.

use super::codec::{self, Call, Reply};
use super::oracle::Oracle;
use super::wire::Pipe;
use fairlock_core::{
    ClientId, CoreError, LockName, LockState, Model, Op, OwnerId, Shares, SimpleValue,
    World as Presence,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Server {
    pub(super) model: Model,
    /// Scripts whose text it has received.
    known: BTreeSet<&'static str>,
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) is_up: bool,
    /// Its address does not even refuse connections.
    pub(super) is_silent: bool,
    /// The data of a replica while replication hangs.
    pub(super) replica: Option<Model>,
}

pub(super) struct Conn {
    pub(super) peer: usize,
    pub(super) to_server: Arc<Pipe>,
    pub(super) to_client: Arc<Pipe>,
    channels: BTreeSet<Vec<u8>>,
}

impl Conn {
    pub(super) fn new(peer: usize, to_server: Arc<Pipe>, to_client: Arc<Pipe>) -> Self {
        Self { peer, to_server, to_client, channels: BTreeSet::new() }
    }

    pub(super) fn channels(&self) -> usize {
        self.channels.len()
    }
}

/// A hold, as the server sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) token: u64,
    /// The rest of its TTL.
    pub(super) left: Duration,
}

/// Bytes for a connection.
pub(super) struct Output {
    pub(super) to: u64,
    pub(super) bytes: Vec<u8>,
    /// It is a message, not a reply.
    pub(super) is_message: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            model: Model::default(),
            known: BTreeSet::new(),
            conns: BTreeMap::new(),
            is_up: true,
            is_silent: false,
            replica: None,
        }
    }
}

impl Server {
    /// The process has ended; it forgets the scripts, and continues with `data`.
    pub(super) fn restart(&mut self, data: Model) {
        self.model = data;
        self.known.clear();
        self.replica = None;
    }

    pub(super) fn forget_scripts(&mut self) {
        self.known.clear();
    }

    /// This hold of an owner, if it stands at that time.
    pub(super) fn standing_of(
        &self,
        name: &LockName,
        owner: &OwnerId,
        token: u64,
        now_us: u64,
    ) -> Option<Standing> {
        let Some(shares) = self.shares(name) else {
            return self.standing(name, now_us).filter(|has| has.token == token);
        };
        let held = shares.holds().get(owner)?;
        let left_us = (held.ends_ms * 1_000).saturating_sub(now_us);
        let stands = held.token.get() == token && held.ends_ms > now_us / 1_000;
        stands.then_some(Standing { token, left: Duration::from_micros(left_us) })
    }

    /// Who has which share of the lock, if several may hold it.
    pub(super) fn shares(&self, name: &LockName) -> Option<&Shares> {
        self.model.get(name)?.shares()
    }

    /// Whether anybody holds the lock.
    pub(super) fn is_held(&self, name: &LockName, now_us: u64) -> bool {
        let Some(shares) = self.shares(name) else { return self.standing(name, now_us).is_some() };
        shares.holds().values().any(|hold| hold.ends_ms > now_us / 1_000)
    }

    /// The lock's hold, if it is held at that time.
    pub(super) fn standing(&self, name: &LockName, now_us: u64) -> Option<Standing> {
        let keys = self.model.get(name)?.snapshot();
        let (token, until_ms) = match &keys.value {
            Some(SimpleValue::Ours { token, .. }) => (token.get(), keys.value_expires),
            _ if keys.hold.is_empty() => return None,
            _ => (keys.token?, keys.hold_expires),
        };
        let left_us = until_ms.map_or(u64::MAX, |until| (until * 1_000).saturating_sub(now_us));
        // As the server counts: in whole milliseconds.
        let lasts = until_ms.is_none_or(|until| until > now_us / 1_000);
        lasts.then_some(Standing { token, left: Duration::from_micros(left_us) })
    }

    /// Carries out one command.
    pub(super) fn execute(
        &mut self,
        conn: u64,
        now_us: u64,
        words: &[Vec<u8>],
        oracle: &mut Oracle,
    ) -> Vec<Output> {
        let word = |at: usize| words.get(at).map_or(&b""[..], Vec::as_slice);
        let command = word(0).to_ascii_uppercase();
        let reply = match command.as_slice() {
            b"EVALSHA" => {
                match codec::script_by_hash(word(1)).filter(|script| self.known.contains(script)) {
                    Some(script) => return self.call(conn, now_us, script, &words[2..], oracle),
                    None => Reply::default().line("-NOSCRIPT No matching script."),
                }
            }
            b"EVAL" => {
                match codec::script_by_text(word(1)) {
                    Some(script) => {
                        self.known.insert(script);
                        return self.call(conn, now_us, script, &words[2..], oracle);
                    }
                    // The check of the user's rights: nothing is denied.
                    None if word(2) == b"0" => Reply::default().array(0),
                    // The client's record.
                    None => Reply::default().line("+OK"),
                }
            }
            b"HELLO" => Reply::default().map(&[
                ("server", "redis"),
                ("version", "7.0.15"),
                ("proto", "3"),
                ("mode", "standalone"),
                ("role", "master"),
            ]),
            // `SET` notes the kind of a lock: no client here uses a name as two kinds.
            b"CLIENT" | b"SET" => Reply::default().line("+OK"),
            b"PING" => Reply::default().line("+PONG"),
            b"INFO" => Reply::default().text("# Memory\r\nmaxmemory:0\r\n"),
            b"TIME" => Reply::default()
                .array(2)
                .text(&(now_us / 1_000_000).to_string())
                .text(&(now_us % 1_000_000).to_string()),
            b"PUBSUB" => {
                let listens = |conn: &&Conn| conn.channels.contains(word(2));
                let count = self.conns.values().filter(listens).count();
                Reply::default().array(2).bulk(word(2)).int(count as u64)
            }
            b"DEL" => Reply::default().int(1),
            b"SUBSCRIBE" | b"UNSUBSCRIBE" => self.subscription(conn, &command, &words[1..]),
            other => panic!("the simulated server does not know {}", other.escape_ascii()),
        };
        vec![Output { to: conn, bytes: reply.bytes(), is_message: false }]
    }

    fn subscription(&mut self, conn: u64, command: &[u8], channels: &[Vec<u8>]) -> Reply {
        let known = &mut self.conns.get_mut(&conn).expect("open").channels;
        let mut reply = Reply::default();
        for channel in channels {
            if command == b"SUBSCRIBE" {
                known.insert(channel.clone());
            } else {
                known.remove(channel);
            }
            let kind = command.to_ascii_lowercase();
            reply = reply.push(3).bulk(&kind).bulk(channel).int(known.len() as u64);
        }
        reply
    }

    fn call(
        &mut self,
        conn: u64,
        now_us: u64,
        script: &str,
        words: &[Vec<u8>],
        oracle: &mut Oracle,
    ) -> Vec<Output> {
        if script == "multi_try" {
            return self.call_together(conn, now_us, &Call::read_together(words), oracle);
        }
        let call = Call::read(script, words);
        let (reply, mut outputs) = self.carry_out(conn, now_us, script, &call, oracle);
        outputs.push(Output { to: conn, bytes: reply, is_message: false });
        outputs
    }

    /// All of them, if each would be granted at once; else none.
    fn call_together(
        &mut self,
        conn: u64,
        now_us: u64,
        calls: &[Call],
        oracle: &mut Oracle,
    ) -> Vec<Output> {
        let is_free = |call: &Call| {
            let presence = Listeners { conns: &self.conns, call };
            let lock = self.model.get(&call.name).cloned().unwrap_or_default();
            lock.would_grant(now_us, &call.op, &call.rules, &presence)
        };
        if let Some(busy) = calls.iter().position(|call| !is_free(call)) {
            let by = self.conns.get(&conn).map(|conn| conn.peer);
            oracle.note(|| format!("client {by:?}: multi_try, {} is not free", calls[busy].name));
            let bytes = Reply::default().int(busy as u64 + 1).bytes();
            return vec![Output { to: conn, bytes, is_message: false }];
        }
        let (mut replies, mut outputs) = (Reply::default().array(calls.len()).bytes(), Vec::new());
        for call in calls {
            let (reply, messages) = self.carry_out(conn, now_us, "multi_try", call, oracle);
            replies.extend(reply);
            outputs.extend(messages);
        }
        outputs.push(Output { to: conn, bytes: replies, is_message: false });
        outputs
    }

    /// The reply to one call, and the messages that it causes.
    fn carry_out(
        &mut self,
        conn: u64,
        now_us: u64,
        script: &str,
        call: &Call,
        oracle: &mut Oracle,
    ) -> (Vec<u8>, Vec<Output>) {
        let Call { name, op, rules, .. } = call;
        let presence = Listeners { conns: &self.conns, call };
        let keys = |lock: &LockState, _: &mut ()| {
            (lock.snapshot().clone(), lock.shares().filter(|_| op.is_shared()).cloned())
        };
        let counted = self.latch_count();
        let applied = self.model.apply_then(now_us, name, op, rules, &presence, keys);
        let (answer, effects, (keys, shares)) = match applied {
            Ok(done) => done,
            Err(CoreError::WrongType) => {
                let bytes = Reply::default().line("-WRONGTYPE a key of another kind").bytes();
                return (bytes, Vec::new());
            }
            Err(error) => panic!("{error}"),
        };
        let by = self.conns.get(&conn).map(|conn| conn.peer);
        oracle.note(|| format!("client {by:?}: {script} {name} {:?}", answer.body));
        if let Op::Latch(op) = op {
            oracle.after_latch(op, counted, self.latch_count());
        }
        match &shares {
            _ if matches!(op, Op::Latch(_)) => {}
            Some(shares) => oracle.after_share(name, op, &answer, &keys, shares),
            None => oracle.after(name, op, &answer, &keys),
        }
        let mut outputs = Vec::new();
        for (channel, text) in call.messages(&effects) {
            let message = Reply::default().push(3).text("message").bulk(&channel).bulk(&text);
            let bytes = message.bytes();
            for (to, _) in self.conns.iter().filter(|(_, other)| other.channels.contains(&channel))
            {
                outputs.push(Output { to: *to, bytes: bytes.clone(), is_message: true });
            }
        }
        (codec::answer(&answer, op.is_shared()), outputs)
    }
}

struct Listeners<'a> {
    conns: &'a BTreeMap<u64, Conn>,
    call: &'a Call,
}

impl Listeners<'_> {
    fn has(&self, channel: &[u8]) -> bool {
        self.conns.values().any(|conn| conn.channels.contains(channel))
    }
}

impl Presence for Listeners<'_> {
    fn inbox(&self, client: ClientId) -> bool {
        self.has(&self.call.inbox(client))
    }

    fn listening(&self, owner: &OwnerId) -> bool {
        self.has(&self.call.waiter(owner))
    }
}
