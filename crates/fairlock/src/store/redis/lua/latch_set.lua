-- Set the latch, unless it is set.
-- KEYS 1..3
-- ARGV 2 request   3 marker's TTL, ms   4 count
-- Reply as in latch.lua
if repeated then return answer(set_by == ARGV[2], value) end
if value then
  mark(ARGV[3])
  return answer(false, value)
end
call('SET', latch, ARGV[4])
begin(nil, ARGV[2])
mark(ARGV[3])
tell('1')
return answer(true, ARGV[4])
