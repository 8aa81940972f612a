-- The simple hold lives on for ttl ms from now.
-- KEYS 1..2
-- ARGV as in renew.lua
-- Reply renewed | nothold, {holder} if there is one
if mine then
  call('PEXPIREAT', lock, now_ms + ARGV[4])
  -- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
  if last_token and now_ms * 1000 - last_token > TOKEN_TTL * 500 then
    local kept = call('PTTL', tokens)
    if kept >= 0 and kept < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, now_ms + TOKEN_TTL) end
  end
  return now_ms .. ' 0 renewed'
end

