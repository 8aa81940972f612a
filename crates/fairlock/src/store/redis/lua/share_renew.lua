-- A share is held for ttl ms from now.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 ttl ms
-- Reply renewed | nothold, {holder} if one has all of it
local owner, token, ttl = ARGV[2], ARGV[3], ARGV[4]
begin()
local hold = hold_of(owner, token)
if not hold then
  pass_shares_on()
  return naming(finish(now_ms .. ' ' .. more .. ' nothold'), whole_holder())
end
local ends = int(now + ttl)
call('ZADD', leases, ends, owner)
if hold.share == 'r' then call('SET', timeout_of(owner), '1', 'PXAT', ends) end
changed = true
raise_token(token)
-- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
if now * 1000 - last_token > TOKEN_TTL * 500 then
  local kept = call('PTTL', tokens)
  if kept >= 0 and kept < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, int(now + TOKEN_TTL)) end
end
return finish(now_ms .. ' ' .. more .. ' renewed')
