-- KEYS: lock, channel, latch
-- ARGV: the owner's field, lease ms for what remains after a partial release, latch ms
-- Replies nil when the lock is free or the owner does not write, 0 after a partial release, 1 after a full one.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local field, lease, latch_ms = ARGV[1], ARGV[2], ARGV[3]

local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call('PUBLISH', channel, '1')
    redis.call('SET', latch, 1, 'PX', latch_ms)
    return nil
end
if mode ~= 'write' or redis.call('HEXISTS', lock, field) == 0 then
    return nil
end
if redis.call('HINCRBY', lock, field, -1) > 0 then
    redis.call('PEXPIRE', lock, lease)
    redis.call('SET', latch, 0, 'PX', latch_ms)
    return 0
end
redis.call('HDEL', lock, field)
if redis.call('HLEN', lock) == 1 then
    redis.call('DEL', lock)
    redis.call('PUBLISH', channel, '1')
else
    -- Its own reads stay, and nobody is told that others may read.
    redis.call('HSET', lock, 'mode', 'read')
end
redis.call('SET', latch, 1, 'PX', latch_ms)
return 1
