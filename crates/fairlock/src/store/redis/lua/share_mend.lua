-- Makes leases agree with the lock again, after keys were lost or meddled with.
-- KEYS as in share_facts.lua
-- ARGV as in share_beat.lua
-- Reply as in share_beat.lua
-- The lock is the truth. What it says of ours gets a lease, so that it ends; what it does not know of goes. And Java
-- may have shortened its life, or an operator taken it for endless.
local function mend()
  if not mode then return end
  local fields, leased = call('HLEN', lock) - 1, call('ZCARD', leases)
  if fields == 0 then
    -- Somebody took the last field away, or a script was stopped: nobody has it.
    call('DEL', lock)
    mode = false
    return
  end
  if fields == leased or max(fields, leased) > MENDED_MAX then return end
  changed = true
  if not rw then call('HDEL', holds, 'used') end -- it is counted anew
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
  -- Somebody took the lock's end away. Java's readers say themselves how long they live.
  if mode == 'read' and call('PTTL', lock) == -1 then
    local longest = MENDED_HOLD
    for at = 1, #known, 2 do
      for hold = 1, math.min(whole(known[at + 1]) or 0, LOOKED_AT_MAX) do
        longest = max(longest, call('PTTL', tagged .. ':' .. known[at] .. ':rwlock_timeout:' .. hold))
      end
    end
    call('PEXPIREAT', lock, int(now + longest))
  end
end

