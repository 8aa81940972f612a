-- The rules about a hold that its holder changes, beside hold.lua.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- The reply that names who holds the lock, if anybody does.
local function naming(text, holder)
  return holder and { text, cut(holder) } or text
end

-- A token key that is missing or was set back does not take a hold away; a newer one does.
local function holds(owner, token)
  return hold[1] == owner and (not last_token or last_token - token <= 0)
end

-- As check_types, but nil if a key is of a wrong type. Whoever waits is refused then, so that a hold which ends is
-- handed to nobody; but it ends.
local function types_known()
  local known, there = pcall(check_types)
  if known then return there end
  if not string.find(type(there) == 'table' and there.err or there, 'WRONGTYPE', 1, true) then check_types() end
end

local function stale(token, change)
  local text = call('HGET', state, 'change')
  if not text then return false end
  local of, last = string.match(text, '^(%d+) (%d+)$')
  return of ~= nil and of - token == 0 and last - change > 0
end

-- The number of the change must live as long as the hold that it protects, and a renewal of a
-- hold in its last millisecond must still find it.
local function set_count(owner, token, count, change)
  local kept = max(touch_state(), hold_ttl() or 0, REGISTRY_TTL)
  call('HSET', lock, owner, count)
  call('HSET', state, 'change', token .. ' ' .. change)
  keep_state(kept)
end

