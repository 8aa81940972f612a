-- Puts the owner at the end of the queue, unless it has an order number: then nothing is written.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
local least_number = max(last, given) + 1
number = now_us
-- Others may have written any score, an endless one included.
if least > 9000000000000000 then least = 9000000000000000 end
if now_us - least_number < 0 then number = string.format('%.0f', least_number) end
if call('ZADD', order, 'NX', number, owner) == 1 then
  length, ordered = call('RPUSH', queue, owner), call('ZCARD', order)
  call('ZADD', scores, max(least, now + FAIR_WAIT * (1 + max(0, length - ordered))), owner)
  call('HSET', state, owner, record, 'given', number)
end
