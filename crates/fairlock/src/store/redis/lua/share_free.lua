-- The common case of acquire: nobody waits, no lease is over, nothing was lost, and the share fits.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
if string.find(how, '^%a+$') then
  -- Of what is there: three are the lock, the leases and the records, if each of them is found below.
  there = timeout and call('EXISTS', lock, leases, holds, order, KEYS[8], timeout)
    or call('EXISTS', lock, leases, holds, order, KEYS[8])
  if there == 0 then
    taking = rw or n ~= nil and n - limit <= 0
  elseif there == 3 and share ~= 'w' then
    -- First what most often is in the way.
    local counts = n and call('HMGET', holds, 'used', 'limit:' .. limit, owner)
    local found, by = counts and counts[1] or '', counts and counts[2] or '0'
    local may = rw or n and not counts[3] and string.find(found, '^%d+$') and #found <= 15 and found + n - limit <= 0
    local fields = may and call('HLEN', lock) or 0
    local first = fields > 1 and call('ZRANGE', leases, '0', '0', 'WITHSCORES') or {}
    -- The lease with the number of the last field is the last one, if each field has its lease: then all of them are ours.
    local last = first[2] and first[2] - now_ms >= 0 and call('ZRANGE', leases, fields - 2, fields - 1, 'WITHSCORES')
    -- If the lock is another than that of the leases, their holders are not in it.
    local known = last and last[2] and not last[3] and string.find(last[2], '^%d+$') and #last[2] <= 15
      and call('HMGET', lock, 'mode', last[1], owner, first[1])
    if known and rw then
      token, last_end, minting = call('HGET', holds, 'phase'), tonumber(last[2]), false
      taking = known[1] == 'read' and known[2] and known[4] and not known[3] and token and #token <= 16
        and string.find(token, '^%d+$') and token - 9007199254740992 < 0
    elseif known and known[1] == 'permits' and known[2] and known[4] and not known[3]
      and string.find(by, '^%d+$') and #by <= 15 then
      used, named, last_end, taking = found + 0, by + 0, tonumber(last[2]), true
      -- Somebody holds under another limit.
      if fields - 1 ~= named then more = '256' end
    end
  end
  if not taking then minting, token, used, named, last_end = true, nil, 0, 0, nil end
end

