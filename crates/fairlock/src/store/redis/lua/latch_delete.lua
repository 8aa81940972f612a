-- Remove the latch, whatever its count.
-- KEYS 1..3
-- ARGV 2 request   3 marker's shortest TTL, ms   4 not after, server ms
-- Reply as in latch.lua | late
if not value then return answer(mark('0 0')) end
mark('1 0')
call('DEL', latch)
tell('1')
return answer('1 0')
