-- Remove the latch, whatever its count.
-- KEYS 1..3
-- ARGV 2 request   3 marker's TTL, ms
-- Reply as in latch.lua
if repeated then return answer(true, value) end
mark(ARGV[3])
if not value then return answer(false, value) end
call('DEL', latch)
tell('1')
return answer(true, false)
