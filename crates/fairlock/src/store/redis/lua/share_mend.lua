-- Makes leases agree with the lock again, after keys were lost or meddled with.
-- KEYS as in share_beat.lua
-- ARGV as in share_beat.lua
-- Reply as in share_beat.lua
-- The lock is the truth. What it says of ours gets a lease, so that it ends; what it does not know of goes. And Java
-- may have shortened its life.
local function mend()
  if not mode or fields - 1 == leased or max(fields - 1, leased) > MENDED_MAX then return end
  changed, kept, former_last = true, nil, nil
  local all = call('HGETALL', lock)
  local till, there = now + max(MENDED_HOLD, call('PTTL', lock)), {}
  for at = 1, #all, 2 do
    local holder = all[at]
    if rw and sub(holder, -6) == ':write' then holder = sub(holder, 1, -7) end
    there[holder] = true
    if ours(holder) then leased = leased + call('ZADD', leases, 'NX', till, holder) end
  end
  local lost = {}
  local found = call('ZRANGE', leases, '0', '-1', 'WITHSCORES')
  for at = 1, #found, 2 do
    if not there[found[at]] then lost[#lost + 1] = found[at] end
  end
  first_end, last_end, last_owner = tonumber(found[2]), tonumber(found[#found]), found[#found - 1]
  if lost[1] then end_shares(lost) end
end

