-- How the lock is held, and who waits: what the operations on shares know before they write.
-- KEYS as in share_keys.lua
-- ARGV 2 whose hold is looked at, where an operation is about one
-- Reply as in head.lua
-- read or write, or permits of a semaphore; false while nobody holds anything.
local me = ARGV[2] or ''
local known = call('HMGET', lock, 'mode', me, me .. ':write')
local mode, former_mode, fields = known[1], known[1], call('HLEN', lock)

-- Nothing of another kind is changed, by any operation.
local others = false
if not mode then
  others = fields > 0 and 'fair'
elseif mode == 'permits' then
  others = rw and 'semaphore'
elseif mode == 'read' or mode == 'write' then
  others = not rw and 'rw'
else
  others = 'others'
end
if others == 'others' then
  return redis.error_reply('FAIRLOCK_KIND a hash with an unknown field `mode`, not a lock')
elseif others then
  return redis.error_reply('FAIRLOCK_KIND in use: ' .. others)
end

-- Keys of a wrong type are found here, before anything is written.
local waiting = call('ZCARD', order)
local ends = call('ZRANGE', leases, '0', '0', 'WITHSCORES')
-- Our leases: how many, the first and the last to end, and who has that one.
local first_end, leased, last_end, last_owner = tonumber(ends[2]), 0, nil, nil
if first_end then
  local last = call('ZREVRANGE', leases, '0', '0', 'WITHSCORES')
  last_owner, last_end = last[1], tonumber(last[2])
  leased = last_owner == ends[1] and 1 or call('ZCARD', leases)
end
local mine = call('HMGET', holds, me, 'used', 'phase')
local notes = call('HMGET', state, 'gather', 'amnesty', 'silence', 'removed', 'given', me, 'guest')
call('ZCARD', beats)

