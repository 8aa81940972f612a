-- KEYS: lock, channel
-- ARGV: '1' to tell the waiters
-- Replies 1 when there was a lock to delete, else 0.
if redis.call('DEL', KEYS[1]) == 0 then
    return 0
end
if ARGV[1] == '1' then
    redis.call('PUBLISH', KEYS[2], '0')
end
return 1
