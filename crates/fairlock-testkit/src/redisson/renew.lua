-- KEYS: lock
-- ARGV: owner, lease ms
-- Replies 1 when the owner still holds the lock, which then has its full lease again, else 0.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
