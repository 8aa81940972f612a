-- KEYS: lock
-- ARGV: owner, lease ms, prefix of the owner's timeout keys
-- Replies nil when the owner reads now, otherwise the lock's TTL in ms.
local lock, owner, lease, prefix = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local mode = redis.call('HGET', lock, 'mode')
local writes = mode == 'write' and redis.call('HEXISTS', lock, owner .. ':write') == 1
if mode and mode ~= 'read' and not writes then
    return redis.call('PTTL', lock)
end
if not mode then
    redis.call('HSET', lock, 'mode', 'read')
end
local count = redis.call('HINCRBY', lock, owner, 1)
redis.call('SET', prefix .. ':' .. count, '1', 'PX', lease)
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
return nil
