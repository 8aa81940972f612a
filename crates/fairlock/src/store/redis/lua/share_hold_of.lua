-- The hold that an operation of its holder names.
-- KEYS as in share_keys.lua
-- ARGV 2 owner   3 token   4 request, 32 hex
-- Reply as in head.lua
-- By its record. Where that was lost, the field alone tells of the hold, which takes the request of a renewal or
-- re-entry that is not late. Others change nothing then, and the lease ends the hold.
local function hold_of(owner, token, request, not_after)
  local hold = held_share()
  if hold then return hold.token == token and hold.request == request and hold or nil end
  if not mode or mine[1] or not not_after or now_ms - not_after > 0 then return nil end
  local count = whole(known[2] or known[3])
  -- As it is now: its lease may have ended in this call.
  if not count or count == 0 or call('HEXISTS', lock, known[2] and owner or owner .. ':write') == 0 then return nil end
  local share = known[3] and 'w' or 'r'
  touch_state()
  if not rw then
    share = string.format('%.0f/%.0f', count, count)
    count_limit(string.format('%.0f', count), 1)
    call('HSET', holds, 'limit:' .. string.format('%.0f', count), named[string.format('%.0f', count)], 'used', used)
    count = 1
  end
  count = string.format('%.0f', count)
  hold = { request = request, token = token, change = '0', count = count, share = share, adopted = true }
  hold.ends = now + max(MENDED_HOLD, ttl_of(lock) or 0)
  write_hold(owner, hold)
  leased = leased + call('ZADD', leases, hold.ends, owner)
  first_end, last_end = math.min(first_end or hold.ends, hold.ends), max(last_end or 0, hold.ends)
  if last_end == hold.ends then last_owner = owner end
  if share == 'r' then keep_for_java(owner, hold.ends) end
  changed, kept = true, nil
  return hold
end

-- Whoever has all of it, Java included; others would not have been in the way of who asks.
local function whole_holder()
  if mode ~= 'write' or fields > MENDED_MAX then return nil end
  local all = call('HGETALL', lock)
  for at = 1, #all, 2 do
    if sub(all[at], -6) == ':write' then return sub(all[at], 1, -7) end
  end
end

