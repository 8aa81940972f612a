-- Numbers and values of others, as replies show them.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local LONGEST = 9000000000000000    -- ms; a sum with the clock is still below 2^53
local SHOWN_MAX = 256               -- bytes of a foreign owner

-- A number for a reply, or what stands for none. No reply joins a TTL in another way: others may have set any.
local function word(number)
  return number and string.format('%.0f', math.min(number, LONGEST)) or '-'
end

-- The ms that a key has left, or false: it has no TTL, or is not there.
local function ttl_of(key)
  local ttl = call('PTTL', key)
  return ttl >= 0 and math.min(ttl, LONGEST)
end

-- An owner for a reply: others may have written any length.
local function cut(owner)
  return sub(owner, 1, SHOWN_MAX)
end

