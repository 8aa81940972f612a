-- What every script on a latch begins with; it is no lock, and needs nothing of head.lua.
-- KEYS  1 count string, absent when the latch is open   shared with Redisson
--       2 note hash: generation, opened                 ours
--       3 marker of the request, if it names one: done 0/1 and the count that it left   ours
-- ARGV  1 the client's constants (settings.lua)
--       2 and on: the operation's own
-- Reply latch, done 0/1, count, generation or none, the last one counted down or none
local call = redis.call
local latch, note, marker = KEYS[1], KEYS[2], KEYS[3]
local NOTE_TTL = 86400000           -- ms, the note, from its last change

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local value = call('GETRANGE', latch, '0', '16')
if value == '' and call('EXISTS', latch) == 0 then value = false end
local kept = call('HMGET', note, 'generation', 'opened')
if value and (#value > 16 or not string.find(value, '^[1-9]%d*$') or value - 9007199254740991 > 0) then
  return redis.error_reply('FAIRLOCK_KIND a string that is no whole number from 1 to 9007199254740991, not a latch')
end
-- It may be another program's lock.
if value and call('PTTL', latch) >= 0 then
  return redis.error_reply('FAIRLOCK_KIND a number that has a TTL, not a latch')
end
local function number(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 or nil
end
local generation, opened = number(kept[1]), number(kept[2])

-- Written like this everywhere: Lua would shorten long numbers.
local function whole(n)
  return string.format('%.0f', n)
end

local at_ms = math.floor(now_us / 1000)
local now_ms = whole(at_ms)

-- Every write of the note ends with this.
local function keep_note()
  call('PEXPIREAT', note, whole(at_ms + NOTE_TTL))
end

-- Another latch begins: the one that is known, if that is later than the last one.
local function begin(known)
  local least = generation and generation + 1 or 0
  if not known or known < least then known = math.max(now_us, least) end
  generation = known
  call('HDEL', note, 'generation')  -- a first write that works without free memory
  call('HSET', note, 'generation', whole(generation))
  keep_note()
end

-- The closed latch gets a note that is about it: Redisson may have set it, or the note may be lost.
local function note_closed(known)
  if not generation or opened == generation or known and known > generation then begin(known) end
end

local function tell(what)
  call(string.match(ARGV[1], '%u+'), 'redisson_countdownlatch__channel__{' .. latch .. '}', what)
end

local function answer(result)
  return now_ms .. ' 0 latch ' .. result .. ' ' .. (generation and whole(generation) or '-') .. ' '
    .. (opened and whole(opened) or '-')
end

