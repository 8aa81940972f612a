-- What the scripts of read-write locks and semaphores know beside head.lua: the keys, and how the lock is held.
--
-- KEYS  1 lock hash      mode, and {owner -> count or permits}       shared with Redisson for a read-write lock
--       2 leases zset    our holders -> end of the lease, epoch ms   ours
--       3 holds hash     records of our holders                      ours
--       4 token string   last token                                  shared
--       5 order zset     our waiters -> order number: the line       ours
--       6 state hash     records of our waiters and the lock         ours
--       7 beats zset     our clients -> epoch ms of last beat        ours
--       8 buried string  only where an operation names a request     ours
--       9, 10            what waiters of other kinds stand in, only where one may enter the line
-- ARGV  as in head.lua
-- Reply as in head.lua
local leases, holds, order, state, beats = KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7]
-- The one of the two kinds; the name of its line tells: fairlock_rw_order or fairlock_sem_order.
local rw = sub(order, 10, 11) == 'rw'
-- read or write, or permits of a semaphore; false while nobody holds anything.
local mode = call('HGET', lock, 'mode')
local former_mode = mode

-- Nothing of another kind is changed, by any operation.
local others = false
if not mode then
  others = call('EXISTS', lock) == 1 and 'fair'
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
call('ZCARD', leases)
call('HLEN', holds)
call('HLEN', state)
call('ZCARD', beats)

