-- Take a plain lock.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV as in acquire.lua
-- Reply {..., 'granted', token, ttl ms} | {..., 'busy', ttl ms or nil} | {..., 'self', count}
--     | {..., 'late'} | {..., 'buried'}
local owner, request, lease, shared = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[15] == '1'
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
if now > tonumber(ARGV[13]) then return { now, 0, 'late' } end
if call('EXISTS', KEYS[8]) == 1 then return { now, 0, 'buried' } end
if free then
  if shared then call('HLEN', state) end -- a key of a wrong type is found here
  write_token(next_token(), false)
  take(owner, lease)
  if shared then
    call('HSET', state, 'grant', int(last_token) .. ' ' .. request)
    keep_state(max(REGISTRY_TTL, lease + D))
  end
  return { now, 0, 'granted', int(last_token), lease }
end
local count = held(owner)
if not count then
  if ARGV[11] == 'W' then mend_hold(lease) end
  return { now, 0, 'busy', hold_ttl() }
end
if shared and granted_request() ~= request then
  return { now, 0, 'self', tonumber(count) }
end
if call('PTTL', lock) == -1 then call('PEXPIREAT', lock, now + lease) end
if not last_token or last_token == 0 then write_token(max(1, now_us), false) end
return { now, 0, 'granted', int(last_token), hold_ttl() or 0 }
