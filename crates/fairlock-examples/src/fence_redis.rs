//! A hash in Redis that refuses holders whose token is not the newest.

use fairlock::FencingToken;
use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

/// Sets fields of a hash, unless a newer token was seen before. Tokens are below 2^53, so Lua's
/// numbers represent them exactly.
const PASS: &str = r"
    local newest = redis.call('HGET', KEYS[1], 'token')
    if newest and tonumber(ARGV[1]) < tonumber(newest) then
        return 0
    end
    redis.call('HSET', KEYS[1], 'token', unpack(ARGV))
    return 1
";

/// Sets `fields` of the hash `key`; with no fields, only refuses older holders from here on.
/// Returns `false` if a newer holder was here before; then nothing was done.
///
/// # Errors
/// Errors of the server. After a lost connection it is unknown whether the fields were set.
pub async fn set_fenced(
    redis: &mut impl ConnectionLike,
    key: &str,
    token: FencingToken,
    fields: &[(&str, &str)],
) -> RedisResult<bool> {
    Script::new(PASS).key(key).arg(token.get()).arg(fields).invoke_async(redis).await
}
