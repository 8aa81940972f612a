-- The rules about a hold, with or without a queue, function by function as in fairlock-core. To make these
-- functions costs the server more than the writes of a common case, which therefore comes before them.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local MENDED_HOLD = 30000           -- ms at least, a hold whose TTL was taken away

local function int(number)
  return string.format('%.0f', number)
end

-- A number of ours, or nil: others may have written anything into the state.
local function whole(text)
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local number = tonumber(text)
  return number < 9007199254740992 and number or nil
end

-- A key of a wrong type is found before anything is written. False when none of the keys is there:
-- nobody ever waited, or nothing is left of it, the common case.
local function check_types()
  if call('EXISTS', queue, scores, order, state, beats) == 0 then return false end
  call('LLEN', queue)
  call('ZCARD', scores)
  call('ZCARD', order)
  call('HLEN', state)
  call('ZCARD', beats)
  return true
end

local function hold_ttl()
  return ttl_of(lock)
end

local function keep_state(ttl)
  call('PEXPIREAT', state, now + ttl)
end

-- A hold of ours without a TTL would outlive a dead holder for ever. `lease` is the caller's own: the clients
-- of a lock use much the same. A living holder's renewal sets its own again. A foreign hold may be meant to
-- last, or be another program's data: its TTL is not ours to set. Returns the new TTL, if it got one.
local function mend_hold(lease)
  if not free and call('PTTL', lock) == -1 and ours(hold[1]) then
    local ttl = max(lease, MENDED_HOLD)
    call('PEXPIREAT', lock, now + ttl)
    return ttl
  end
end

-- The request that got the present hold, where that was written down.
local function granted_request()
  local text = call('HGET', state, 'grant')
  if not text or not last_token then return nil end
  local token, request = string.match(text, '^(%d+) ([0-9a-f]+)$')
  if token and #request == 32 and token - last_token == 0 then return request end
  return nil
end

-- A first write that works without free memory, whether the key exists or not; changes nothing
-- but a TTL that an operator took away (no record has an empty name). Not PEXPIREAT to what is
-- left: that deletes a key in its last millisecond. Returns the ms that the state has left.
local function touch_state()
  local left = call('PTTL', state)
  if left ~= -1 then
    call('HDEL', state, '')
    return math.min(max(left, 0), LONGEST)
  end
  keep_state(REGISTRY_TTL)
  return REGISTRY_TTL
end

-- Once nobody holds or waits our own keys go; not right after a waiter was removed as dead: it
-- may return, and must not be taken for one that comes after a loss of state. And not while the last
-- order number is ahead of the clock, which would then give smaller ones.
local function tidy()
  if free and call('EXISTS', queue) == 0 then
    local known = call('HMGET', state, 'removed', 'given')
    if not known[1] and (whole(known[2]) or 0) - now_us <= 0 then
      call('DEL', order, state, beats)
    end
  end
end

