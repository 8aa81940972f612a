-- An attempt to get a simple lock was given up: the hold that it may have got goes.
-- KEYS 1 and 8 (8 = the request's burial)
-- ARGV as in leave.lua; 8 owner   9 request   10 burial ms or 0
-- Reply {..., 'freed'} | {..., 'nothing'}
local bury = tonumber(ARGV[10])
local got = owner == ARGV[8] and request == ARGV[9]
if got then call('DEL', lock) end
if bury > 0 then
  call('DEL', KEYS[8])              -- a first write that works without free memory
  call('SET', KEYS[8], '1', 'PXAT', now + bury)
end
if not got then return { now, 0, 'nothing' } end
call(publish, base, '0')
return { now, 0, 'freed' }
