-- What every script begins with. Of a fair or plain lock it goes on with hash.lua, for some operations with
-- their common case (short_*.lua), then rules.lua with the functions, then the operation. Of a simple
-- lock it goes on with simple.lua and the operation.
--
-- KEYS  1 lock hash      {owner -> hold count}                 shared with Redisson
--       2 queue list     owners, head first                    shared
--       3 scores zset    owner -> epoch ms                     shared
--       4 token string   last token                            shared
--       5 order zset     our waiters -> order number           ours
--       6 state hash     records of our waiters and the lock   ours
--       7 beats zset     our clients -> epoch ms of last beat  ours
--       8 buried string  only where an operation names a request, ours
-- ARGV  1 publish command (PUBLISH or SPUBLISH)
--       2 base channel of the lock
--       3 prefix of inbox channels
--       4 heartbeat period HB, ms
--       5 D: silent for longer is dead, ms
--       6 fairLockWaitTimeout, ms
--       7 flags: j = a Java fleet uses the shared keys; p = subscriber counts mean something
--       8 and on: the operation's own
-- Reply {server ms, MORE, tag, ...}; tokens as strings. MORE: 1 = dead waiters remain in front, plus
--     2 for each that this call removed.
--
-- Everything is read and checked before the first write. Numbers above 2^53 never occur; numbers are
-- never joined to strings without %.0f, because Lua would shorten them.
local call, floor, max, fmt = redis.call, math.floor, math.max, string.format
local lock, tokens = KEYS[1], KEYS[4]
local publish, base = ARGV[1], ARGV[2]
local fleet = string.find(ARGV[7], 'j', 1, true) ~= nil
local TOKEN_TTL = 86400000          -- ms, token key while only ours use it, from when the clock has passed it

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = floor(now_us / 1000)

-- The last token of all is given: whoever has it renews and releases, and nobody gets another.
local exhausted = false
local NO_TOKEN_LEFT = 'FAIRLOCK_TOKEN the token key has reached 2^53'

local last_token = call('GET', tokens)
if last_token then
  if #last_token > 16 or not string.find(last_token, '^%d+$') then
    return redis.error_reply('FAIRLOCK_TOKEN the token key does not hold a whole number below 2^53')
  end
  last_token = tonumber(last_token)
  if last_token > 9007199254740991 then return redis.error_reply(NO_TOKEN_LEFT) end
  exhausted = last_token == 9007199254740991
end

