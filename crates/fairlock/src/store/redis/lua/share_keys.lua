-- The keys of read-write locks and semaphores, by name.
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
-- Java believes in a reader for as long as its key with this beginning exists.
local tagged = rw and (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')

