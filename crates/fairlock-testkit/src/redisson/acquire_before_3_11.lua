-- KEYS: lock, queue, timeouts
-- ARGV: owner, lease ms, allowance ms, now ms (the caller's clock), '1' to enter the queue
-- Replies as acquire.lua. Every attempt that fails gives the waiter a new score, counted from the
-- head's; whoever gets the lock leaves the others' scores as they are.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, allowance, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

drop_stale_heads(queue, timeouts, now)

local head = redis.call('LINDEX', queue, 0)
if redis.call('EXISTS', lock) == 0 and (not head or head == owner) then
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, owner)
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

local wait
if head and head ~= owner then
    wait = tonumber(redis.call('ZSCORE', timeouts, head)) - now
else
    wait = redis.call('PTTL', lock)
end
if redis.call('ZADD', timeouts, wait + allowance + now, owner) == 1 then
    redis.call('RPUSH', queue, owner)
end
return wait
