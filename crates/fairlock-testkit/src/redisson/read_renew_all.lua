-- Before 4.4.0: whoever renews a reader renews all of them, the dead ones, too.
-- KEYS: lock
-- ARGV: owner, lease ms, what all timeout keys of the lock begin with, 1 if the script fails at a hold that is not
--       its owner's first
-- Replies 1 if the owner reads, and 0 otherwise. The lock gets the lease whatever others hold.
local lock, owner, lease, base, fails = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

if redis.call('HEXISTS', lock, owner) == 0 then
    return 0
end
redis.call('PEXPIRE', lock, lease)
local fields = redis.call('HGETALL', lock)
for at = 1, #fields, 2 do
    for index = tonumber(fields[at + 1]) or 0, 1, -1 do
        if fails and index > 1 then
            return 1
        end
        redis.call('PEXPIRE', base .. ':' .. fields[at] .. ':rwlock_timeout:' .. index, lease)
    end
end
return 1
