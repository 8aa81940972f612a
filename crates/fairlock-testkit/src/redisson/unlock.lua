-- KEYS: lock, queue, timeouts, channel base, latch
-- ARGV: owner, lease ms for what remains after a partial release, now ms, latch ms
-- Replies nil when the owner does not hold the lock, 0 after a partial release, 1 after a full one
-- (and for anybody when the lock is free). The latch gives a resent request the first answer.
local lock, queue, timeouts, channel, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease, now, latch_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end

drop_stale_heads(queue, timeouts, now)

local was_free = redis.call('EXISTS', lock) == 0
if not was_free then
    if redis.call('HEXISTS', lock, owner) == 0 then
        return nil
    end
    if redis.call('HINCRBY', lock, owner, -1) > 0 then
        redis.call('PEXPIRE', lock, lease)
        redis.call('SET', latch, 0, 'PX', latch_ms)
        return 0
    end
    redis.call('DEL', lock)
end

redis.call('SET', latch, 1, 'PX', latch_ms)
local head = redis.call('LINDEX', queue, 0)
if head then
    redis.call('PUBLISH', channel .. ':' .. head, '0')
end
return 1
