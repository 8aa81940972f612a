-- KEYS: lock
-- ARGV: owner, lease ms, prefix of the owner's timeout keys
-- Replies 1 if the owner reads, and 0 otherwise. The lock gets the lease whatever others hold.
local lock, owner, lease, prefix = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local count = tonumber(redis.call('HGET', lock, owner))
if not count then
    return 0
end
for index = count, 1, -1 do
    redis.call('PEXPIRE', prefix .. ':' .. index, lease)
end
redis.call('PEXPIRE', lock, lease)
return 1
