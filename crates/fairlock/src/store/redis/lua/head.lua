-- What every script on a lock begins with. Operations on a fair or plain lock go on with hash.lua, those on a
-- simple lock with simple.lua; each script contains only the slices that it needs (README.md).
--
-- KEYS  of a fair or plain lock
--       1 lock hash      {owner -> hold count}                 shared with Redisson
--       2 queue list     owners, head first                    shared
--       3 scores zset    owner -> epoch ms                     shared
--       4 token string   last token                            shared
--       5 order zset     our waiters -> order number           ours
--       6 state hash     records of our waiters and the lock   ours
--       7 beats zset     our clients -> epoch ms of last beat  ours
--       8 buried string  only where an operation names a request, ours
--       of a simple lock: 1 lock string, 2 token string, 3 buried string
-- ARGV  1 the client's constants (settings.lua)
--       2 and on: the operation's own
-- Reply a text of words: server ms, MORE, tag, ...; `-` for none. What may be any bytes follows it in an array.
--     MORE: 1 = dead waiters remain in front, plus 2 for each that this call removed.
--
-- Everything is read and checked before the first write. Numbers above 2^53 never occur. To make a number
-- of text or text of a number costs as much as a small command, so texts stay texts while they can: the
-- clock, tokens, what a client sent. Such a text is never compared with < or >, but by difference. Numbers
-- of more than 14 digits are never joined to strings without %.0f, because Lua would shorten them. A TTL may
-- be such a number, for others set any: shown.lua makes words of TTLs.
local call, sub = redis.call, string.sub
local lock, tokens = KEYS[1], KEYS[4] or KEYS[2]
local TOKEN_TTL = '86400000'        -- ms, token key while only ours use it, from when the clock has passed it

local clock = call('TIME')
local micros = clock[2]
if #micros < 6 then micros = string.rep('0', 6 - #micros) .. micros end
local now_us, now_ms = clock[1] .. micros, clock[1] .. sub(micros, 1, 3)
local last_token = call('GET', tokens)
local more, foreign = '0', false     -- as written; others than ours wait, where that counts
