-- KEYS: queue, timeouts
-- ARGV: owner, allowance ms
-- Takes a waiter out of the queue and moves up those behind it. Nobody is told.
local queue, timeouts = KEYS[1], KEYS[2]
local owner, allowance = ARGV[1], tonumber(ARGV[2])

local is_behind = false
for _, member in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if is_behind then
        redis.call('ZINCRBY', timeouts, -allowance, member)
    elseif member == owner then
        is_behind = true
    end
end
redis.call('ZREM', timeouts, owner)
redis.call('LREM', queue, 0, owner)
return nil
