-- The common case of acquire and plain_acquire: the lock is free and nobody waits. Same result as
-- theirs; whatever is not plainly that case is left to them.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
if free and not exhausted and ARGV[12] == '0' and ARGV[15] == '0' and now <= tonumber(ARGV[13])
  and call('EXISTS', queue, KEYS[8]) == 0 then
  local persistent = fleet or (last_token and call('PTTL', tokens) == -1)
  local number = max((last_token or 0) + 1, now_us)
  local token = fmt('%.0f', number)
  if persistent then
    call('SET', tokens, token)
  else
    call('SET', tokens, token, 'PXAT', floor(number / 1000) + TOKEN_TTL)
  end
  local lease = tonumber(ARGV[10])
  call('HSET', lock, ARGV[8], 1)
  call('PEXPIREAT', lock, now + lease)
  return { now, 0, 'granted', token, lease }
end

