-- The renewal of a hold that the caller has, without what a server needs that took over without the last writes.
-- KEYS as in renew.lua
-- ARGV as in renew.lua
-- Reply as in renew.lua
local owner, token, ttl = ARGV[2], ARGV[3], ARGV[4]
local ahead = last_token ~= token and (last_token and last_token - token or -1) or 0
local mine = hold[1] == owner and ahead <= 0
if mine then
  call('HLEN', state)               -- keys of a wrong type are found here
  if ahead < 0 then
    call('LLEN', queue)
    call('ZCARD', scores)
    call('ZCARD', order)
    call('ZCARD', beats)
  end
  call('PEXPIREAT', state, now + max(REGISTRY_TTL, ttl + D))
  call('PEXPIREAT', lock, now + ttl)
  if ahead == 0 then
    -- The series outlives a hold that is renewed for days: who looks for locks finds them by it.
    if now * 1000 - last_token > TOKEN_TTL * 500 then
      local kept = call('PTTL', tokens)
      if kept >= 0 and kept < TOKEN_TTL / 2 then call('PEXPIREAT', tokens, now + TOKEN_TTL) end
    end
    return now_ms .. ' 0 renewed'
  end
end

