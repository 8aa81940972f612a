//! One private server with a stopped clock, and all connections that a run needs.

use super::super::keys::{self, Keys, Publishing};
use super::super::script::{By, call};
use super::super::wire::{self, CallError, Cmd, Parser};
use super::super::{classify, reply};
use super::dump::{self, Dump};
use crate::store::Topic;
use fairlock_core::{Answer, Channel, ClientId, Effect, LockName, Op, OwnerId, Payload, RequestId};
use fairlock_core::{Rules, Snapshot, Token, World};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::JavaClient;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The name of the lock under test.
pub(super) const NAME: &str = "job";

pub(super) struct Fixture {
    pub(super) server: Server,
    pub(super) name: LockName,
    pub(super) keys: Keys,
    /// Calls the scripts, as the store does.
    link: Link,
    /// Inspects and changes keys directly.
    pub(super) raw: Raw,
    /// Receives every message. Pattern subscriptions do not count for PUBSUB NUMSUB.
    observer: Raw,
    /// Subscribes every inbox and channel that should have a subscriber.
    listener: Raw,
    pub(super) present: Present,
    pub(super) java: [JavaClient; 2],
    /// Calls the scripts without their short ways.
    pub(super) long_way: bool,
    #[cfg(feature = "sqlite")]
    pub(super) host: super::host::Host,
    now_us: u64,
}

/// Who is subscribed at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    inboxes: BTreeSet<ClientId>,
    waiters: BTreeSet<OwnerId>,
    guests: bool,
}

impl World for Present {
    fn inbox(&self, client: ClientId) -> bool {
        self.inboxes.contains(&client)
    }

    fn listening(&self, owner: &OwnerId) -> bool {
        self.waiters.contains(owner)
    }

    fn guests(&self) -> bool {
        self.guests
    }
}

/// A connection that blocks.
struct Link {
    stream: TcpStream,
    parser: Parser,
}

impl Link {
    fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addr()).expect("the server accepts");
        stream.set_nodelay(true).expect("a socket of TCP");
        let mut link = Self { stream, parser: Parser::default() };
        link.call(wire::cmd("HELLO").arg(3_u8)).expect("the server knows RESP3");
        link
    }

    fn call(&mut self, cmd: &Cmd) -> Result<wire::Value, CallError> {
        self.stream.write_all(&cmd.bytes())?;
        let (mut buffer, mut replies) = ([0; 16 << 10], Vec::new());
        while replies.is_empty() {
            let length = self.stream.read(&mut buffer)?;
            assert!(length > 0, "the server closed the connection");
            self.parser.feed(&buffer[..length], &mut replies)?;
        }
        assert_eq!(replies.len(), 1, "one command was sent");
        replies.remove(0).extract_error()
    }
}

impl Fixture {
    /// Starts a server; returns `None` and prints a message if it is not installed.
    pub(super) fn start(generation: Generation) -> Option<Self> {
        Self::over(Server::builder(generation).clock_shim(true).start()?)
    }

    fn over(server: Server) -> Option<Self> {
        let link = Link::to(&server);
        let mut observer = server.client();
        observer.call(&["PSUBSCRIBE", "*"]);
        let java = [JavaClient::new(&server, 0), JavaClient::new(&server, 0)];
        let (raw, listener) = (server.client(), server.client());
        let name = LockName::new(NAME.as_bytes()).expect("a legal name");
        let keys = Keys::new(&name);
        let present = Present::default();
        Some(Self {
            server,
            #[cfg(feature = "sqlite")]
            host: super::host::Host::new(name.clone()),
            name,
            keys,
            link,
            raw,
            observer,
            listener,
            present,
            java,
            long_way: false,
            now_us: 0,
        })
    }

    /// Empties the server, sets its clock and ends all subscriptions.
    pub(super) fn reset(&mut self, now_us: u64) {
        self.set_now(now_us);
        self.raw.call(&["FLUSHALL"]);
        for client in std::mem::take(&mut self.present.inboxes) {
            self.inbox(client, false);
        }
        for owner in std::mem::take(&mut self.present.waiters) {
            self.listens(&owner, false);
        }
        if self.present.guests {
            self.guests(false);
        }
        self.messages();
    }

    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(super) fn set_now(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.server.clock().freeze_at(now_us as i64);
        for java in &mut self.java {
            java.set_now_ms(Some((now_us / 1_000) as i64));
        }
    }

    /// Subscribes or unsubscribes the inbox of one of our clients.
    pub(super) fn inbox(&mut self, client: ClientId, on: bool) {
        if on {
            self.present.inboxes.insert(client);
        } else {
            self.present.inboxes.remove(&client);
        }
        self.toggle(&keys::inbox(client), on);
    }

    /// Subscribes or unsubscribes a waiter's own channel, as Redisson does.
    pub(super) fn listens(&mut self, owner: &OwnerId, on: bool) {
        if on {
            self.present.waiters.insert(owner.clone());
        } else {
            self.present.waiters.remove(owner);
        }
        self.toggle(&keys::topic(&Topic::Waiter(self.name.clone(), owner.clone())), on);
    }

    /// Subscribes or unsubscribes the channel of Redisson's read-write lock, as a waiter of it does.
    pub(super) fn guests(&mut self, on: bool) {
        self.present.guests = on;
        self.toggle(&keys::topic(&Topic::ReadWrite(self.name.clone())), on);
    }

    fn toggle(&mut self, channel: &[u8], on: bool) {
        let command: &[u8] = if on { b"SUBSCRIBE" } else { b"UNSUBSCRIBE" };
        self.listener.send(&[command, channel]);
        loop {
            // Earlier messages precede the confirmation.
            let read = self.listener.read().expect("the server confirms");
            let [kind, subject, _] = read.array() else { panic!("{read:?}") };
            let kind = kind.text().as_bytes();
            if kind.eq_ignore_ascii_case(command) && *subject == Value::Bulk(channel.to_vec()) {
                return;
            }
        }
    }

    /// Calls the operation's script as the store does.
    ///
    /// # Errors
    /// The server's error.
    pub(super) fn call(&mut self, rules: &Rules, op: &Op) -> Result<Answer, String> {
        let by = if self.long_way { By::LongWay } else { By::Hash };
        let mut result = self.query(by, rules, op);
        if result.as_ref().is_err_and(classify::is_noscript) {
            result = self.query(By::Text, rules, op);
        }
        let value = result.map_err(|error| error.to_string())?;
        reply::answer(value.clone()).map_err(|error| format!("{error}: {value:?}"))
    }

    /// Sends a command of the store's.
    pub(super) fn send(&mut self, cmd: &Cmd) -> Result<wire::Value, CallError> {
        self.link.call(cmd)
    }

    fn query(&mut self, by: By, rules: &Rules, op: &Op) -> Result<wire::Value, CallError> {
        self.link.call(&call(by, rules, Publishing::Whole, &self.name, op))
    }

    /// Messages published since the last call, in order. The reply to PING arrives after all of
    /// them.
    pub(super) fn messages(&mut self) -> Vec<Effect> {
        let all = self.published();
        all.iter().map(|(channel, payload)| self.effect(channel.as_bytes(), payload)).collect()
    }

    /// The same as they were published: channels and payloads.
    pub(super) fn published(&mut self) -> Vec<(String, Vec<u8>)> {
        self.observer.send(&["PING"]);
        let mut heard = Vec::new();
        loop {
            let read = self.observer.read().expect("the server answers");
            match read.array() {
                [kind, _, channel, Value::Bulk(payload)] if kind.text() == "pmessage" => {
                    heard.push((channel.text().to_owned(), payload.clone()));
                }
                [pong, _] if pong.text() == "pong" => return heard,
                other => panic!("expected a message, got {other:?}"),
            }
        }
    }

    fn effect(&self, channel: &[u8], payload: &[u8]) -> Effect {
        let payload = match reply::grant_message(payload) {
            Some((grant, at_ms)) => Payload::Grant { grant, at_ms },
            None if payload == b"0" => Payload::Zero,
            None if let Some((owner, token)) = reply::forced_message(payload) => {
                let (client, number) = owner.parts().expect("an owner of ours is told");
                assert_eq!(channel, keys::inbox(client), "told in its own inbox");
                Payload::Forced { number, token }
            }
            None if reply::is_leader_message(payload) => {
                let text = std::str::from_utf8(payload).expect("words");
                let words: Vec<&str> = text.split(' ').collect();
                let number = |at: usize| words[at].parse().expect("a number");
                let token = Token::new(number(1)).expect("a token");
                let owner = OwnerId::parse(words[3].as_bytes());
                Payload::Leader { owner, token, at_ms: number(2) }
            }
            None => panic!("a message in no known form: {}", payload.escape_ascii()),
        };
        let base = self.keys.base();
        let client = channel.strip_prefix(keys::INBOX_PREFIX.as_bytes());
        let channel = if let Some(client) = client.and_then(ClientId::parse) {
            Channel::Inbox(client)
        } else if channel == base {
            Channel::Base
        } else if channel == self.keys.leader() {
            Channel::Leader
        } else {
            let rest = channel.strip_prefix(base.as_slice());
            let id = rest.and_then(|rest| rest.strip_prefix(b":"));
            Channel::Waiter(OwnerId::parse(id.expect("a channel of this lock")))
        };
        Effect { channel, payload }
    }

    /// All stored data. `burials` are the requests that may have been buried.
    pub(super) fn dump(&mut self, burials: &BTreeSet<RequestId>) -> Dump {
        dump::read(&mut self.raw, &self.keys, self.now_us / 1_000, burials)
    }

    pub(super) fn write(&mut self, snapshot: &Snapshot) {
        dump::write(&mut self.raw, &self.keys, snapshot);
    }
}
