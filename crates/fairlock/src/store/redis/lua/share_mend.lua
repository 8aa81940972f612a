-- Makes leases agree with the lock again, after keys were lost or meddled with.
-- KEYS as in share_facts.lua
-- ARGV as in share_beat.lua
-- Reply as in share_beat.lua
-- The lock is the truth. What it says of ours gets a lease, so that it ends; what it does not know of goes. And Java
-- may have shortened its life.
local function mend()
  if not mode then return end
  local fields, leased = call('HLEN', lock) - 1, call('ZCARD', leases)
  if fields == leased or max(fields, leased) > MENDED_MAX then return end
  changed = true
  local known = call('HGETALL', lock)
  local till = int(now + max(MENDED_HOLD, call('PTTL', lock)))
  local there = {}
  for at = 1, #known, 2 do
    local owner = known[at]
    if rw and sub(owner, -6) == ':write' then owner = sub(owner, 1, -7) end
    there[owner] = true
    if ours(owner) and call('ZADD', leases, 'NX', till, owner) == 1 and rw and owner == known[at] then
      call('SET', timeout_of(owner), '1', 'PXAT', till)
    end
  end
  for _, owner in ipairs(call('ZRANGE', leases, 0, -1)) do
    if not there[owner] then end_share(owner) end
  end
end

