//! A hash in Redis that refuses a holder whose token is not the newest.

use fairlock::FencingToken;
use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

/// Sets fields of a hash, unless a newer token was there before. Tokens are below 2^53, so Lua's
/// numbers hold them exactly.
const PASS: &str = r"
    local newest = redis.call('HGET', KEYS[1], 'token')
    if newest and tonumber(ARGV[1]) < tonumber(newest) then
        return 0
    end
    redis.call('HSET', KEYS[1], 'token', unpack(ARGV))
    return 1
";

/// Sets `fields` of the hash `key`; with none of them, only keeps older holders out from here on.
/// `false`: a newer holder was here before, nothing was done.
///
/// # Errors
/// Those of the server. After a lost connection it is not known whether the fields were set.
pub async fn set_fenced(
    redis: &mut impl ConnectionLike,
    key: &str,
    token: FencingToken,
    fields: &[(&str, &str)],
) -> RedisResult<bool> {
    Script::new(PASS).key(key).arg(token.get()).arg(fields).invoke_async(redis).await
}
