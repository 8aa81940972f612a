-- KEYS: lock, queue, timeouts, channel base
-- ARGV: now ms
-- Replies 1 when there was a lock to delete, else 0.
local lock, queue, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

drop_stale_heads(queue, timeouts, tonumber(ARGV[1]))

if redis.call('DEL', lock) == 0 then
    return 0
end
local head = redis.call('LINDEX', queue, 0)
if head then
    redis.call('PUBLISH', channel .. ':' .. head, '0')
end
return 1
