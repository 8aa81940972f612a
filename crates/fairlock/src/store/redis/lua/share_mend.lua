-- Makes leases agree with the lock again, after keys were lost or meddled with.
-- KEYS as in share_beat.lua
-- ARGV as in share_beat.lua
-- Reply as in share_beat.lua
-- The lock is the truth. What it says of ours gets a lease, so that it ends; what it does not know of goes. And Java
-- may have shortened its life, or an operator taken it for endless.
local function mend()
  if not mode or fields - 1 == leased or max(fields - 1, leased) > MENDED_MAX then return end
  changed, kept = true, nil
  local all = call('HGETALL', lock)
  if not rw then
    -- It is counted anew.
    call('HDEL', holds, 'used')
    used = used_in(all)
  end
  local till, there = now + max(MENDED_HOLD, ttl_of(lock) or 0), {}
  for at = 1, #all, 2 do
    local holder = all[at]
    if rw and sub(holder, -6) == ':write' then holder = sub(holder, 1, -7) end
    there[holder] = true
    if ours(holder) and call('ZADD', leases, 'NX', till, holder) == 1 then
      leased = leased + 1
      if mode == 'read' then keep_for_java(holder, till) end
    end
  end
  local lost = {}
  local found = call('ZRANGE', leases, '0', '-1', 'WITHSCORES')
  for at = 1, #found, 2 do
    if not there[found[at]] then lost[#lost + 1] = found[at] end
  end
  first_end, last_end, last_owner = end_of(found[2]), end_of(found[#found]), found[#found - 1]
  if lost[1] then end_shares(lost) end
  -- Somebody took the lock's end away. Java's readers say themselves how long they live.
  if mode == 'read' and call('PTTL', lock) == -1 then keep_for_readers_of_java() end
end

