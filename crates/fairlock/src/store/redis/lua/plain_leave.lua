-- An attempt to get a plain lock was given up: the hold that it may have got goes.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV as in leave.lua
-- Reply {..., 'freed'} | {..., 'nothing'}
local owner, request, bury, shared = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11] == '1'
check_types()
touch_state()
local body = 'nothing'
if held(owner) then
  local granted = granted_request()
  if granted == request or (not granted and not shared) then
    wipe()
    call(publish, base, '0')
    body = 'freed'
  end
end
if bury > 0 then call('SET', KEYS[8], '1', 'PXAT', now + bury) end
tidy()
return { now, 0, body }
