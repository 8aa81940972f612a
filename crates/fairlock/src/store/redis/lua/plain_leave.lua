-- An attempt to get a plain lock was given up: the hold that it may have got goes.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV as in leave.lua
-- Reply freed | nothing
local owner, request, bury, shared = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
check_types()
touch_state()
local body = 'nothing'
if hold[1] == owner then
  local granted = granted_request()
  if granted == request or (not granted and not shared) then
    call('DEL', lock)
    free = true
    call(publish, 'redisson_lock__channel' .. sub(tokens, 20), '0')
    body = 'freed'
  end
end
if bury ~= '0' then call('SET', KEYS[8], '1', 'PXAT', now + bury) end
tidy()
return now_ms .. ' 0 ' .. body
