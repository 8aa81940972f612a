-- KEYS: lock, queue, timeouts
-- ARGV: owner, lease ms, allowance ms, now ms (the caller's clock), '1' to enter the queue,
-- '1' to reply like the versions before 3.32
-- Replies nil when the owner holds the lock now; otherwise how long to wait in ms, or 1 when the
-- caller did not want to enter the queue.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, allowance, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

drop_stale_heads(queue, timeouts, now)

local head = redis.call('LINDEX', queue, 0)
if redis.call('EXISTS', lock) == 0 and (not head or head == owner) then
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, owner)
    -- Everybody moves up by what this waiter had added for itself (or says it had).
    for _, member in ipairs(redis.call('ZRANGE', timeouts, 0, -1)) do
        redis.call('ZINCRBY', timeouts, -allowance, member)
    end
    redis.call('HSET', lock, owner, 1)
    redis.call('PEXPIRE', lock, lease)
    return nil
end

if redis.call('HEXISTS', lock, owner) == 1 then
    redis.call('HINCRBY', lock, owner, 1)
    redis.call('PEXPIRE', lock, lease)
    return nil
end

if ARGV[5] ~= '1' then
    return 1
end

local dead_after = redis.call('ZSCORE', timeouts, owner)
if dead_after then
    if ARGV[6] == '1' then
        -- From when on the waiter may be next at the earliest. Below zero once that is past.
        return tonumber(dead_after) - allowance - now
    end
    return math.max(0, redis.call('PTTL', lock))
end

local base = redis.call('PTTL', lock)
local tail = redis.call('LINDEX', queue, -1)
if tail and tail ~= owner then
    local tail_dead_after = redis.call('ZSCORE', timeouts, tail)
    if tail_dead_after then
        base = tonumber(tail_dead_after) - now
    end
end
if redis.call('ZADD', timeouts, base + allowance + now, owner) == 1 then
    redis.call('RPUSH', queue, owner)
end
return base
