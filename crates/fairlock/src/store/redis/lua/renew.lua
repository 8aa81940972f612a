-- The hold lives on for ttl ms from now.
-- KEYS 1..7
-- ARGV  8 owner   9 token   10 ttl ms
-- Reply {..., 'renewed'} | {..., 'nothold', holder or nil}
local token, ttl = tonumber(ARGV[9]), tonumber(ARGV[10])
if holds(ARGV[8], token) then
  local behind = not last_token or last_token < token
  if behind then check_types() end
  call('HLEN', state) -- a key of a wrong type is found here
  call('PEXPIREAT', state, now + max(REGISTRY_TTL, ttl + D))
  call('PEXPIREAT', lock, now + ttl)
  -- A server that took over without the last writes may know an older hold of this owner: from now on it
  -- is this one, and what still ends the older one finds nothing.
  if behind then write_token(token, has_foreign()) end
  -- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
  if last_token and now * 1000 > last_token + TOKEN_TTL * 500 then
    local kept = call('PTTL', tokens)
    if kept >= 0 and kept < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, now + TOKEN_TTL) end
  end
  return { now, 0, 'renewed' }
end
check_types()
local other = not free and holder()
next_holder()
return { now, more, 'nothold', other }
