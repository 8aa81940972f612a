-- An attempt to get a simple lock was given up: the hold that it may have got goes.
-- KEYS 1..3 (3 = the request's burial)
-- ARGV as in leave.lua
-- Reply freed | nothing
local got = by == ARGV[2] and of == ARGV[3]
if got then call('DEL', lock) end
if ARGV[4] ~= '0' then
  call('DEL', KEYS[3])              -- a first write that works without free memory
  call('SET', KEYS[3], '1', 'PXAT', now_ms + ARGV[4])
end
if not got then return now_ms .. ' 0 nothing' end
call(string.match(ARGV[1], '%u+'), 'redisson_lock__channel' .. sub(tokens, 20), '0')
return now_ms .. ' 0 freed'
