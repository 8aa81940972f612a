-- Look at a latch. For those who wait: it gets a note if it has none, and keeps it.
-- KEYS 1..2
-- ARGV 2 the generation that they wait for, 0 before it is known; absent: nobody waits, nothing is changed
-- Reply as in latch.lua; done 0
if value and ARGV[2] then
  local known = ARGV[2] + 0
  note_closed(known > 0 and known or nil)
  if call('PTTL', note) < NOTE_TTL / 2 then keep_note() end
end
return answer('0 ' .. (value or '0'))
