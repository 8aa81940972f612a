//! A server with a frozen clock that can be brought to a state and inspected.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::{Cast, Keys};
use crate::raw::Raw;
use crate::resp::Value;
use crate::server::{Generation, Server};
use crate::wait;

/// The lock in all vectors.
pub const LOCK: &str = "a";
/// The time in all vectors, in microseconds since the epoch: in 2033, and not a whole millisecond,
/// so that one unit cannot be mistaken for the other.
pub const NOW_US: i64 = 2_000_000_000_123_456;
/// The same in whole milliseconds.
pub const NOW_MS: i64 = NOW_US / 1000;

/// How long a server may take to notice that a listener is gone.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// A server with its clock, and a listener for everything that is published.
#[derive(Debug)]
pub struct Bench {
    server: Server,
    raw: Raw,
    listener: Raw,
}

impl Bench {
    /// Starts a server; `None`, with a notice, if it or the clock is not available.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(generation: Generation) -> Option<Self> {
        let server = Server::builder(generation).clock_shim(true).start()?;
        let (raw, mut listener) = (server.client(), server.client());
        listener.call(&["PSUBSCRIBE", "*"]);
        let mut bench = Self { server, raw, listener };
        bench.clear();
        Some(bench)
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Deletes all keys and messages, and sets the clock to [`NOW_US`].
    pub fn clear(&mut self) {
        self.server.clock().freeze_at(NOW_US);
        self.raw.call(&["FLUSHALL"]);
        self.heard();
    }

    /// Sends a command.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Value {
        self.raw.call(command)
    }

    /// Sets the clock to this long after [`NOW_US`].
    pub fn advance_ms(&self, ms: i64) {
        self.server.clock().freeze_at(NOW_US + ms * 1000);
    }

    /// Sets exactly these keys, all at once.
    ///
    /// # Panics
    ///
    /// If a file contains an invalid entry.
    pub fn set(&mut self, parts: &[&Keys], cast: &Cast) {
        let mut commands = vec![vec!["FLUSHALL".to_owned()]];
        for (key, entry) in parts.iter().flat_map(|part| part.iter()) {
            let key = cast.fill(key);
            commands.push(write(&key, entry, cast));
            if let Some(ttl_ms) = entry["ttl_ms"].as_i64() {
                commands.push(vec!["PEXPIRE".to_owned(), key, ttl_ms.to_string()]);
            }
        }
        self.raw.call(&["MULTI"]);
        for command in &commands {
            assert_eq!(self.raw.call(command).text(), "QUEUED", "{command:?}");
        }
        let replies = self.raw.call(&["EXEC"]);
        for (reply, command) in replies.array().iter().zip(&commands) {
            assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
        }
    }

    /// All current keys.
    pub fn keys(&mut self, cast: &Cast) -> Keys {
        let found = self.raw.call(&["KEYS", "*"]);
        let mut keys = Map::new();
        for key in found.array() {
            let key = key.text();
            let ttl_ms = self.raw.call(&["PTTL", key]).int();
            // Gone meanwhile.
            let Some((kind, value)) = self.value(key, cast) else { continue };
            let ttl_ms = if ttl_ms == -1 { Json::Null } else { ttl_ms.into() };
            let entry = json!({ "type": kind, "ttl_ms": ttl_ms, "value": value });
            keys.insert(cast.blank(key), entry);
        }
        keys
    }

    fn value(&mut self, key: &str, cast: &Cast) -> Option<(String, Json)> {
        let kind = self.raw.call(&["TYPE", key]).text().to_owned();
        let read: &[&str] = match kind.as_str() {
            "none" => return None,
            "string" => &["GET", key],
            "hash" => &["HGETALL", key],
            "list" => &["LRANGE", key, "0", "-1"],
            "zset" => &["ZRANGE", key, "0", "-1", "WITHSCORES"],
            other => panic!("a key of the type {other}"),
        };
        let reply = self.raw.call(read);
        let text = |value: &Value| cast.blank(value.text());
        let pairs = |values: &[Value]| -> Json {
            values.chunks(2).map(|pair| (text(&pair[0]), Json::from(text(&pair[1])))).collect()
        };
        let value = match kind.as_str() {
            "string" => text(&reply).into(),
            "list" => reply.array().iter().map(text).collect(),
            _ => pairs(reply.array()),
        };
        Some((kind, value))
    }

    /// The messages published since the last call, in order, as pairs of channel and payload.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn heard(&mut self) -> Vec<(String, String)> {
        let mut heard = Vec::new();
        self.listener.send(&["PING"]);
        loop {
            let value = self.listener.read().expect("the listener's connection");
            match value.array() {
                [kind, _, channel, payload] if kind.text() == "pmessage" => {
                    heard.push((channel.text().to_owned(), payload.text().to_owned()));
                }
                _ => return heard,
            }
        }
    }

    /// The same in the form of the files.
    pub fn published(&mut self, cast: &Cast) -> Json {
        let heard = self.heard();
        let pairs = heard.iter();
        pairs.map(|(channel, payload)| json!([cast.blank(channel), cast.blank(payload)])).collect()
    }

    /// The channels with subscribers, sorted.
    pub fn subscribed(&mut self, cast: &Cast) -> Json {
        let channels = self.raw.call(&["PUBSUB", "CHANNELS"]);
        let mut channels: Vec<_> =
            channels.array().iter().map(|channel| cast.blank(channel.text())).collect();
        channels.sort();
        channels.into()
    }

    /// Waits until exactly these channels have subscribers: a server notices a closed connection a
    /// moment later. The caller compares the result.
    pub fn subscribed_soon(&mut self, cast: &Cast, expected: &Json) -> Json {
        let mut subscribed = Json::Null;
        wait::holds(NOTICED_WITHIN, || {
            subscribed = self.subscribed(cast);
            subscribed == *expected
        });
        subscribed
    }
}

/// The command that writes a key.
fn write(key: &str, entry: &Json, cast: &Cast) -> Vec<String> {
    let text = |value: &Json| cast.fill(value.as_str().expect("contents are texts"));
    let (name, rest): (_, Vec<_>) = match (&entry["type"], &entry["value"]) {
        (Json::String(kind), Json::String(value)) if kind == "string" => {
            ("SET", vec![cast.fill(value)])
        }
        (Json::String(kind), Json::Array(members)) if kind == "list" => {
            ("RPUSH", members.iter().map(text).collect())
        }
        (Json::String(kind), Json::Object(fields)) if kind == "hash" => {
            let pairs = fields.iter().flat_map(|(field, value)| [cast.fill(field), text(value)]);
            ("HSET", pairs.collect())
        }
        (Json::String(kind), Json::Object(members)) if kind == "zset" => {
            let pairs = members.iter().flat_map(|(member, score)| [text(score), cast.fill(member)]);
            ("ZADD", pairs.collect())
        }
        other => panic!("{key} has a type and a value that fit: {other:?}"),
    };
    let mut command = vec![name.to_owned(), key.to_owned()];
    command.extend(rest);
    command
}
