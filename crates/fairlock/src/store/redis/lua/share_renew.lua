-- A share is held for ttl ms from now.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 request, 32 hex   5 ttl ms   6 not after, epoch ms
-- Reply renewed | nothold, {holder} if one has all of it
local owner, token = ARGV[2], ARGV[3]
begin()
local hold, holder, body = hold_of(owner, token, ARGV[4], ARGV[6]), nil, 'renewed'
serving = not hold
if not hold then
  holder, body = nil, 'nothold'
else
  touch_state()
  -- What a lost record said of its end is not known.
  hold.ends = hold.adopted and max(hold.ends, now + ARGV[5]) or now + ARGV[5]
  call('ZADD', leases, hold.ends, owner)
  local last = call('ZREVRANGE', leases, '0', '0', 'WITHSCORES')
  last_owner, last_end = last[1], end_of(last[2])
  if hold.share == 'r' then keep_for_java(owner, hold.ends) end
  changed = true
  raise_token(token)
  -- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
  if now * 1000 - last_token > TOKEN_TTL * 500 then
    local left = call('PTTL', tokens)
    if left >= 0 and left < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, now + TOKEN_TTL) end
  end
end
