-- KEYS: lock, token
-- ARGV: owner, lease ms
-- Replies as plain_acquire.lua. Whoever gets the lock gets a new token, also by a re-entry.
local lock, token, owner, lease = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 1 and redis.call('HEXISTS', lock, owner) == 0 then
    return redis.call('PTTL', lock)
end
redis.call('INCR', token)
redis.call('HINCRBY', lock, owner, 1)
redis.call('PEXPIRE', lock, lease)
return nil
