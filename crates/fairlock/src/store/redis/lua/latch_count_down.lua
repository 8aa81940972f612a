-- Count the latch down by one; at 0 it is open, and those who wait for it are told.
-- KEYS 1..3
-- ARGV 2 request   3 marker's TTL, ms
-- Reply as in latch.lua
if repeated then return answer(true, value) end
mark(ARGV[3])
if not value then return answer(false, value) end
if value ~= '1' then
  value = whole(value - 1)
  call('SET', latch, value, 'KEEPTTL')
  return answer(true, value)
end
note_closed(nil)
opened = generation
call('HSET', note, 'opened', whole(opened))
keep_note()
call('DEL', latch)
tell('0')
return answer(true, false)
