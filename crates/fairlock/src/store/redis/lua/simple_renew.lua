-- The simple hold lives on for ttl ms from now.
-- KEYS 1 and 4
-- ARGV  8 owner   9 token   10 ttl ms
-- Reply {..., 'renewed'} | {..., 'nothold', holder or nil}
if owner ~= ARGV[8] or token ~= ARGV[9] then return { now, 0, 'nothold', holder() } end
call('PEXPIREAT', lock, now + tonumber(ARGV[10]))
-- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
if last_token and now * 1000 > last_token + TOKEN_TTL * 500 then
  local kept = call('PTTL', tokens)
  if kept >= 0 and kept < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, now + TOKEN_TTL) end
end
return { now, 0, 'renewed' }
