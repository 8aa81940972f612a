-- KEYS: lock, channel
-- ARGV: the mode that is ended, the message
-- Replies 1 if the lock was held in that mode, and 0 otherwise. Timeout keys stay to their end.
if redis.call('HGET', KEYS[1], 'mode') ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], ARGV[2])
return 1
