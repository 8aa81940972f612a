//! What the locks protect: a counter for each lock, on a separate server that no fault touches. It
//! refuses tokens smaller than the largest it has seen.

use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::{self, Value};
use fairlock_testkit::server::{Generation, Server};
use std::net::SocketAddr;
use std::time::Duration;

/// How long it may take to answer.
const ANSWERED: Duration = Duration::from_secs(60);

/// Reads the counter. From then on smaller tokens are refused.
const READ: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return false end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'count') or '0')";

/// Writes the counter, unless a larger token was seen, and counts accepted writes.
const WRITE: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return false end
redis.call('HSET', KEYS[1], 'count', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'writes', 1)
return 1";

#[derive(Debug)]
pub(crate) struct Resource(Server);

impl Resource {
    pub(crate) fn start() -> Option<Self> {
        Server::start(Generation::Redis70).map(Self)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    /// The locks whose counter differs from the number of accepted writes: updates were lost.
    pub(crate) fn lost_updates(&self) -> Vec<String> {
        let mut raw = self.0.client();
        let locks = raw.call(&["KEYS", "*"]);
        let lost = locks.array().iter().filter_map(|lock| {
            let fields = raw.call(&["HMGET", lock.text(), "count", "writes"]);
            let [count, writes] = fields.array() else { panic!("{fields:?}") };
            let equal = count == writes;
            (!equal).then(|| {
                format!("{}: {} after {} writes", lock.text(), shown(count), shown(writes))
            })
        });
        lost.collect()
    }
}

fn shown(value: &Value) -> &str {
    if value.is_nil() { "nothing" } else { value.text() }
}

#[derive(Debug)]
pub(crate) struct Access(Raw);

impl Access {
    pub(crate) fn to(addr: SocketAddr) -> Self {
        Self(Raw::connect(addr))
    }

    /// No fault touches the resource, but the machine may be busy for long.
    fn call(&mut self, command: &[&str]) -> Value {
        self.0.send_bytes(&resp::encode(command)).expect("the resource is there");
        let reply = self.0.read_within(ANSWERED).expect("the resource is there");
        reply.expect("the resource answers")
    }

    /// The counter of this lock; `None` if the token is too small.
    pub(crate) fn read(&mut self, lock: &str, token: u64) -> Option<i64> {
        let reply = self.call(&["EVAL", READ, "1", lock, &token.to_string()]);
        (!reply.is_nil()).then(|| reply.int())
    }

    /// Whether the write was accepted.
    pub(crate) fn write(&mut self, lock: &str, token: u64, count: i64) -> bool {
        let (token, count) = (token.to_string(), count.to_string());
        !self.call(&["EVAL", WRITE, "1", lock, &token, &count]).is_nil()
    }
}

/// The same as [`READ`] for a text; without a token there is no check.
const READ_SET: &str = "\
if ARGV[1] ~= '' then \
  local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
  if tonumber(ARGV[1]) < seen then return false end \
  redis.call('HSET', KEYS[1], 'token', ARGV[1]) \
end \
return redis.call('HGET', KEYS[1], 'set') or ''";

/// The same as [`WRITE`] for a text.
const WRITE_SET: &str = "\
if ARGV[1] ~= '' then \
  local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
  if tonumber(ARGV[1]) < seen then return false end \
end \
redis.call('HSET', KEYS[1], 'set', ARGV[2]) \
return 1";

impl Access {
    /// The whole set as text, each element followed by a comma; `None` if the token is too small.
    pub(crate) fn read_set(&mut self, set: &str, token: Option<u64>) -> Option<String> {
        let reply = self.call(&["EVAL", READ_SET, "1", set, &shown_token(token)]);
        (!reply.is_nil()).then(|| reply.text().to_owned())
    }

    /// Whether the write was accepted.
    pub(crate) fn write_set(&mut self, set: &str, token: Option<u64>, text: &str) -> bool {
        !self.call(&["EVAL", WRITE_SET, "1", set, &shown_token(token), text]).is_nil()
    }

    /// The elements of a set.
    pub(crate) fn elements(&mut self, set: &str) -> Vec<String> {
        let text = self.read_set(set, None).expect("nobody asks for a token");
        text.split_terminator(',').map(ToOwned::to_owned).collect()
    }
}

fn shown_token(token: Option<u64>) -> String {
    token.map_or(String::new(), |token| token.to_string())
}
