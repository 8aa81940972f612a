-- Take a simple lock.
-- KEYS 1, 4 and 8 (8 = the request's burial)
-- ARGV as in acquire.lua; 8 owner   9 request   10 lease ms   11 T/W   13 not after count
-- Reply {..., 'granted', token, ttl ms} | {..., 'taken', ttl ms or nil, foreign 0/1}
--     | {..., 'self', count} | {..., 'late'} | {..., 'buried'}
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
local lease = tonumber(ARGV[10])
if now > tonumber(ARGV[13]) then return { now, 0, 'late' } end
if call('EXISTS', KEYS[8]) == 1 then return { now, 0, 'buried' } end
if free then
  local minted = max((last_token or 0) + 1, now_us)
  write_token(minted)
  minted = int(minted)
  call('SET', lock, ARGV[8] .. ':' .. ARGV[9] .. ':' .. minted, 'PXAT', now + lease, 'NX')
  return { now, 0, 'granted', minted, lease }
end
if owner == ARGV[8] then
  if request ~= ARGV[9] then return { now, 0, 'self', 1 } end
  -- Another copy of the request that got it. Without a TTL: an operator took that away.
  if not ttl then
    call('PEXPIREAT', lock, now + lease)
    ttl = lease
  end
  return { now, 0, 'granted', token, ttl }
end
-- Others may lock without an end, and mean it: their TTL is theirs.
if owner and not ttl and ARGV[11] == 'W' then
  ttl = max(lease, MENDED_HOLD)
  call('PEXPIREAT', lock, now + ttl)
end
return { now, 0, 'taken', ttl, owner and 0 or 1 }
