-- The common cases of plain_acquire: the lock is free and the owner has but this request, or another holds it.
-- KEYS as in plain_acquire.lua
-- ARGV as in acquire.lua
-- Reply as in plain_acquire.lua
if call('EXISTS', KEYS[8]) == 1 then return now_ms .. ' 0 buried' end
local taking = free and #how == 1
if not free and hold[1] ~= owner then
  local ttl = call('PTTL', lock)
  -- A longer one would be shortened.
  if ttl >= 0 and ttl < 100000000000000 then return now_ms .. ' 0 busy ' .. ttl end
end

