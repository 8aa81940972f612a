-- KEYS: lock, channel, latch
-- ARGV: owner, lease ms for what remains after a partial release, latch ms, '1' to tell the waiters
-- Replies nil when the owner does not hold the lock, 0 after a partial release, 1 after a full one.
-- The latch gives a resent request the first answer.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, latch_ms, tells = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end
if redis.call('HEXISTS', lock, owner) == 0 then
    return nil
end
if redis.call('HINCRBY', lock, owner, -1) > 0 then
    redis.call('PEXPIRE', lock, lease)
    redis.call('SET', latch, 0, 'PX', latch_ms)
    return 0
end
redis.call('DEL', lock)
if tells then
    redis.call('PUBLISH', channel, '0')
end
redis.call('SET', latch, 1, 'PX', latch_ms)
return 1
