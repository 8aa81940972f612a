//! What the locks protect: a counter for each lock on a server of its own, which no fault touches. It
//! refuses whoever comes with a smaller token than it has seen.

use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::net::SocketAddr;

/// Reads the counter. From now on smaller tokens are refused.
const READ: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return false end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'count') or '0')";

/// Writes the counter, unless a larger token was seen; counts how often that was accepted.
const WRITE: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return false end
redis.call('HSET', KEYS[1], 'count', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'writes', 1)
return 1";

/// The resource itself.
#[derive(Debug)]
pub(crate) struct Resource(Server);

impl Resource {
    pub(crate) fn start() -> Option<Self> {
        Server::start(Generation::Redis70).map(Self)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    /// The locks whose counter is not the number of accepted writes: updates were lost.
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

/// A connection to the resource.
#[derive(Debug)]
pub(crate) struct Access(Raw);

impl Access {
    pub(crate) fn to(addr: SocketAddr) -> Self {
        Self(Raw::connect(addr))
    }

    /// What the counter of this lock says; `None` for too small a token.
    pub(crate) fn read(&mut self, lock: &str, token: u64) -> Option<i64> {
        let reply = self.0.call(&["EVAL", READ, "1", lock, &token.to_string()]);
        (!reply.is_nil()).then(|| reply.int())
    }

    /// Whether the write was accepted.
    pub(crate) fn write(&mut self, lock: &str, token: u64, count: i64) -> bool {
        let (token, count) = (token.to_string(), count.to_string());
        !self.0.call(&["EVAL", WRITE, "1", lock, &token, &count]).is_nil()
    }
}
