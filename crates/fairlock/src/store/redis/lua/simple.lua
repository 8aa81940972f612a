-- What the scripts of simple locks know beside head.lua.
-- A simple lock is one string, as the many clients keep it that lock with SET key value NX PX and let
-- go by compare-and-delete. Ours is "owner:request:token"; any other value is foreign and opaque.
--
-- KEYS  1 lock string      the value of whoever holds the lock   shared with everybody
--       4 token string     last token                            shared with the other kinds
--       8 buried string    only where an operation names a request, ours
--       the others as in head.lua, not looked at
-- ARGV  as in head.lua; 1 publish command, 2 base channel, 3 inbox prefix and 7 flags count
-- Reply {server ms, 0, tag, ...}; tokens as strings
local match = string.match
local MENDED_HOLD = 30000           -- ms at least, a hold whose TTL was taken away
local VALUE_SHOWN = 256             -- bytes of a foreign value that are read and shown

local value = call('GETRANGE', lock, 0, VALUE_SHOWN - 1) -- a key of a wrong type is found here
local left = call('PTTL', lock)     -- -2: no key, -1: no TTL
local free = left == -2
local ttl = left >= 0 and left

-- Who holds the lock, if a client of ours wrote the value: owner, request and token, all strings.
local owner, request, token = match(value,
  '^(%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:[1-9]%d*):(%x+):([1-9]%d*)$')
if owner and (#owner > 52 or #request ~= 32 or #token > 16 or string.find(value, '%u')
  or tonumber(token) >= 9007199254740992) then
  owner, request, token = nil, nil, nil
end

local function int(number)
  return fmt('%.0f', number)
end

-- The owner, a foreign value's first bytes, or nil when free.
local function holder()
  if free then return false end
  return owner or value
end

-- A series that a Java client began, or may continue, gets no TTL from us.
local function write_token(number)
  if fleet or (last_token and call('PTTL', tokens) == -1) then
    call('SET', tokens, number)
  else
    call('SET', tokens, number, 'PXAT', max(now, floor(number / 1000)) + TOKEN_TTL)
  end
end
