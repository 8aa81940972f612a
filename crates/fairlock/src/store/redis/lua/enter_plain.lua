-- The common case of acquire where others are before the caller: one owner holds the lock, and a client
-- that was heard not long ago gets one more waiter, at the end of the queue. Whatever is not plainly that
-- case is left to acquire.lua.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
if not free and hold[1] ~= owner and (how == 'W' or how == 'Ws') then
  local beat = call('ZSCORE', beats, sub(owner, 1, 36))
  local age = beat and now - beat
  -- Where the last number is known, a record of the owner's own is not the only field, and may be written over.
  local known = age and age >= 0 and age < HB / 2 and call('HGET', state, 'given')
  if known then hold_left = call('PTTL', lock) end
  -- A longer one would be shortened.
  if hold_left >= 0 and hold_left < 99999999999999 then
    local tail = call('LINDEX', queue, '-1')
    local scored = call('ZMSCORE', scores, owner, tail or owner)
    local listed, behind = scored[1], tail and scored[2]
    local largest = call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]
    least, last, given = (behind or 0) + 0, (largest or 0) + 0, tonumber(known) or 0
    entering = not listed and (not tail or behind and largest) and max(last, given) < 9007199254740991
  end
end

