//! Redisson's `RCountDownLatch`: a count that only falls, and one channel for all who wait.

use super::{JavaClient, Subscription};
use crate::raw::Raw;

/// KEYS: latch, channel. ARGV: count.
const SET: &str = "\
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[2], '1')
return 1";
/// KEYS: latch, channel.
const COUNT_DOWN: &str = "\
local left = redis.call('DECR', KEYS[1])
if left <= 0 then redis.call('DEL', KEYS[1]) end
if left == 0 then redis.call('PUBLISH', KEYS[2], '0') end";
/// KEYS: latch, channel.
const DELETE: &str = "\
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('PUBLISH', KEYS[2], '1')
return 1";

/// The channel of a latch, with braces around any name.
pub fn latch_channel(latch: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{latch}}}")
}

impl JavaClient {
    /// `trySetCount(count)`: whether there was none.
    #[track_caller]
    pub fn latch_set(&mut self, latch: &str, count: i64) -> bool {
        self.eval(&[SET], &[latch, &latch_channel(latch)], &[count.to_string()]).int() == 1
    }

    /// `countDown()`.
    #[track_caller]
    pub fn latch_count_down(&mut self, latch: &str) {
        self.eval(&[COUNT_DOWN], &[latch, &latch_channel(latch)], &[]);
    }

    /// `delete()`: whether there was one.
    #[track_caller]
    pub fn latch_delete(&mut self, latch: &str) -> bool {
        self.eval(&[DELETE], &[latch, &latch_channel(latch)], &[]).int() == 1
    }

    /// `getCount()`.
    #[track_caller]
    pub fn latch_count(&mut self, latch: &str) -> i64 {
        let count = self.raw.call(&["GET", latch]);
        if count.is_nil() { 0 } else { count.text().parse().expect("a count") }
    }

    /// Subscribes to the channel that all share who wait.
    #[track_caller]
    pub fn latch_subscribe(&self, latch: &str) -> Subscription {
        let mut raw = Raw::connect(self.addr);
        raw.subscribe(&latch_channel(latch));
        Subscription { raw, permits: 0 }
    }
}
