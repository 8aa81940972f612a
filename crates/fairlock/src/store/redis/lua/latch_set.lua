-- Set the latch, unless it is set.
-- KEYS 1..3
-- ARGV 2 request   3 marker's shortest TTL, ms   4 not after, server ms   5 count
-- Reply as in latch.lua | late
if value then return answer(mark('0 ' .. value)) end
call('SET', latch, ARGV[5])
begin()
mark('1 ' .. ARGV[5])
tell('1')
return answer('1 ' .. ARGV[5])
