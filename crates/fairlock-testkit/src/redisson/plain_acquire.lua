-- KEYS: lock
-- ARGV: owner, lease ms
-- Replies nil when the owner holds the lock now, otherwise the lock's TTL in ms.
local lock, owner, lease = KEYS[1], ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 0 or redis.call('HEXISTS', lock, owner) == 1 then
    redis.call('HINCRBY', lock, owner, 1)
    redis.call('PEXPIRE', lock, lease)
    return nil
end
return redis.call('PTTL', lock)
