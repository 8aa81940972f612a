-- Take a plain lock.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV as in acquire.lua
-- Reply granted, token, ttl ms | busy, ttl ms or none | self, count | late | buried
shared = string.find(how, 'o', 1, true) ~= nil
if free then
  if shared then call('HLEN', state) end -- a key of a wrong type is found here
  return take_now()
end
if hold[1] ~= owner then
  if sub(how, 1, 1) == 'W' then mend_hold(lease) end
  return now_ms .. ' 0 busy ' .. word(hold_ttl())
end
if shared and granted_request() ~= request then return now_ms .. ' 0 self ' .. hold[2] end
if call('PTTL', lock) == -1 then call('PEXPIREAT', lock, now + lease) end
if not last_token or last_token - 0 == 0 then write_token(now_us) end
return now_ms .. ' 0 granted ' .. last_token .. ' ' .. word(hold_ttl() or 0)
