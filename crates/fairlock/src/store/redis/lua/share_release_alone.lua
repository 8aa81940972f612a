-- The common cases of release: a hold of the caller's ends whole, no lease is over, nothing was lost, and nobody waits.
-- What is known here serves share_heir.lua, too.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local owner, text = ARGV[2], not ARGV[5] and call('HGET', holds, ARGV[2])
local of, has, share = string.match(text or '', '^(%x+) (%d+) %d+ %d+ (%S+)$')
-- sole: the caller's is the only hold. beside: the other one that ends last, and by when. former_end: the same with
-- the caller's.
local sole, beside, beside_end, former_end, waits, field, n, limit = false, nil, nil, nil, 0, owner, nil, nil
if has == ARGV[3] and of == ARGV[4] and last_token and last_token - has >= 0 then
  n, limit = string.match(share, '^([1-9]%d*)/([1-9]%d*)$')
  if share == 'w' then field = owner .. ':write' end
  local two = call('ZRANGE', leases, '0', '1', 'WITHSCORES')
  if two[2] and two[2] - now_ms >= 0 and (rw or n) then
    waits = call('EXISTS', order, state, beats)
    if not two[3] then
      local known = two[1] == owner and call('HLEN', lock) == 2 and call('HMGET', lock, 'mode', field)
      sole = known and known[2] and known[1] == (n and 'permits' or share == 'w' and 'write' or 'read')
    elseif share ~= 'w' then
      local mine = two[1] == owner and two[2] or two[3] == owner and two[4] or call('ZSCORE', leases, owner)
      -- The leases with the numbers of the last two fields are the last ones, if each field has its lease: then all of
      -- them are ours.
      local fields = call('HLEN', lock)
      local last = fields > 2 and call('ZRANGE', leases, fields - 3, fields - 1, 'WITHSCORES') or {}
      beside, beside_end = last[3], last[4]
      if beside == owner then beside, beside_end = last[1], last[2] end
      local known = mine and beside and not last[5] and string.find(last[4], '^%d+$') and #last[4] <= 13
        and string.find(beside_end, '^%d+$') and string.find(mine, '^%d+$') and call('HMGET', lock, 'mode', owner, beside, two[1])
      -- When whoever reads longest leaves, the lock ends sooner, unless Java keeps it longer.
      if not known or not known[2] or not known[3] or not known[4] or n and known[2] ~= n or rw and mine - beside_end >= 0
        or known[1] ~= (rw and 'read' or 'permits') then
        beside = nil
      else
        former_end = max(mine + 0, beside_end + 0)
        beside_end = beside_end + 0
      end
      if waits > 0 then waits = call('EXISTS', order) end
    end
  end
end
if sole and waits == 0 then
  if share == 'r' then
    call('DEL', lock, leases, holds, tagged .. ':' .. owner .. ':rwlock_timeout:1')
  else
    call('DEL', lock, leases, holds)
  end
  -- Java's waiters; without the right to their channel they look when the lock ends.
  if rw then redis.pcall(publish, 'redisson_rwlock:' .. tagged, share == 'w' and '1' or '0') end
  return now_ms .. ' 0 released'
end
local used, named
if beside and n then
  local counts = call('HMGET', holds, 'used', 'limit:' .. limit)
  used, named = counts[1] or '', counts[2] or ''
  if string.find(used, '^%d+$') and #used <= 15 and used - n >= 0
    and string.find(named, '^%d+$') and #named <= 15 and named - 1 > 0 then
    used, named = used - n, named - 1
  else
    beside = nil
  end
end
-- The lock ends with the last lease.
local function keep_leases(last_end)
  if last_end ~= former_end then call('PEXPIREAT', lock, max(last_end, now + 1)) end
  if not former_end or kept_until(last_end) ~= kept_until(former_end) then
    local kept = kept_until(last_end) .. ''
    call('PEXPIREAT', leases, kept)
    call('PEXPIREAT', holds, kept)
  end
end

if beside and waits == 0 then
  call('ZREM', leases, owner)
  call('HDEL', holds, owner)
  call('HDEL', lock, owner)
  if rw then
    call('DEL', tagged .. ':' .. owner .. ':rwlock_timeout:1')
  else
    call('HSET', holds, 'used', used, 'limit:' .. limit, named)
    keep_leases(beside_end)
  end
  return now_ms .. ' 0 released'
end

