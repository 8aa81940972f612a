-- KEYS: lock
-- ARGV: the owner's field, lease ms
-- Replies nil when the owner writes now, otherwise the lock's TTL in ms.
local lock, field, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])

local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call('HSET', lock, 'mode', 'write', field, '1')
    redis.call('PEXPIRE', lock, lease)
    return nil
end
if mode == 'write' and redis.call('HEXISTS', lock, field) == 1 then
    redis.call('HINCRBY', lock, field, 1)
    redis.call('PEXPIRE', lock, redis.call('PTTL', lock) + lease)
    return nil
end
return redis.call('PTTL', lock)
