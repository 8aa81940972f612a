-- Count the latch down by one; at 0 it is open, and those who wait for it are told.
-- KEYS 1..3
-- ARGV 2 request   3 marker's shortest TTL, ms   4 not after, server ms
-- Reply as in latch.lua | late
if not value then return answer(mark('0 0')) end
local result = mark('1 ' .. whole(value - 1))
if value ~= '1' then
  call('SET', latch, whole(value - 1))
  return answer(result)
end
note_closed(nil)
opened = generation
call('HSET', note, 'opened', whole(opened))
keep_note()
call('DEL', latch)
tell('0')
return answer(result)
