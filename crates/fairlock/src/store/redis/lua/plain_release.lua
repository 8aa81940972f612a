-- Let go of a plain lock, of everything or down to a count, and tell the waiters.
-- KEYS 1..7
-- ARGV as in release.lua
-- Reply as in release.lua
local owner, token, keep, change = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local there = types_known()
local broken, alone, mine = there == nil, not there, holds(owner, token)
if broken and (keep or not mine) then check_types() end
if not mine then
  if not alone then tidy() end
  return naming(now_ms .. ' 0 nothold', hold[1])
end
if keep then
  if stale(token, change) then return now_ms .. ' 0 stale' end
  set_count(owner, token, keep, change)
  return now_ms .. ' 0 held ' .. keep
end
call('DEL', lock)
free = true
call(publish, 'redisson_lock__channel' .. sub(tokens, 20), '0')
if not last_token or last_token - token < 0 then write_token(token) end
if not alone then tidy() end
return now_ms .. ' 0 released'
