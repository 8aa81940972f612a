-- Take a simple lock.
-- KEYS 1..3 (3 = the request's burial)
-- ARGV as in acquire.lua
-- Reply granted, token, ttl ms | taken, ttl ms or none, foreign 0/1 | self, count | late | buried
local MENDED_HOLD = 30000           -- ms at least, a hold whose TTL was taken away
if call('EXISTS', KEYS[3]) == 1 then return now_ms .. ' 0 buried' end
local ttl = call('PTTL', lock)      -- -1: no TTL
if by == owner then
  if of ~= request then return now_ms .. ' 0 self 1' end
  -- Another copy of the request that got it. Without a TTL: an operator took that away.
  if ttl < 0 then
    call('PEXPIREAT', lock, now_ms + lease)
    ttl = lease
  end
  return now_ms .. ' 0 granted ' .. by_token .. ' ' .. word(ttl)
end
-- Others may lock without an end, and mean it: their TTL is theirs.
if by and ttl < 0 and sub(how, 1, 1) == 'W' then
  ttl = math.max(lease, MENDED_HOLD)
  call('PEXPIREAT', lock, now_ms + ttl)
end
return now_ms .. ' 0 taken ' .. word(ttl >= 0 and ttl) .. (by and ' 0' or ' 1')
