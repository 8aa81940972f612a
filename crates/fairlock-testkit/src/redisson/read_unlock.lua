-- KEYS: lock, channel, latch
-- ARGV: owner, what all timeout keys of the lock begin with, latch ms
-- Replies nil when the lock is free or the owner does not read, 0 while somebody holds it still, else 1.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, base, latch_ms = ARGV[1], ARGV[2], ARGV[3]

local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call('PUBLISH', channel, '0')
    redis.call('SET', latch, 1, 'PX', latch_ms)
    return nil
end
if redis.call('HEXISTS', lock, owner) == 0 then
    return nil
end
local left = redis.call('HINCRBY', lock, owner, -1)
if left == 0 then
    redis.call('HDEL', lock, owner)
end
redis.call('DEL', base .. ':' .. owner .. ':rwlock_timeout:' .. left + 1)

-- The longest of those that still read.
local longest = 0
local fields = redis.call('HGETALL', lock)
if #fields > 2 then
    for at = 1, #fields, 2 do
        for index = 1, tonumber(fields[at + 1]) or 0 do
            local key = base .. ':' .. fields[at] .. ':rwlock_timeout:' .. index
            longest = math.max(longest, redis.call('PTTL', key))
        end
    end
    if longest > 0 then
        redis.call('PEXPIRE', lock, longest)
    end
    if longest > 0 or mode == 'write' then
        redis.call('SET', latch, 0, 'PX', latch_ms)
        return 0
    end
end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '0')
redis.call('SET', latch, 1, 'PX', latch_ms)
return 1
