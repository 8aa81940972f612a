-- KEYS: queue, timeouts
-- ARGV: owner, ms that all others move up by if the owner is the head
local queue, timeouts = KEYS[1], KEYS[2]
local owner, allowance = ARGV[1], tonumber(ARGV[2])

if allowance > 0 and redis.call('LINDEX', queue, 0) == owner then
    for _, member in ipairs(redis.call('ZRANGE', timeouts, 0, -1)) do
        redis.call('ZINCRBY', timeouts, -allowance, member)
    end
end
redis.call('ZREM', timeouts, owner)
redis.call('LREM', queue, 0, owner)
return nil
