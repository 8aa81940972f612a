-- A writer reads from now on, and those come in who wait to read next. Its token becomes that of all who read with it.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 number of this change
-- Reply held, count | stale | nothold, {holder} if one has all of it
local owner, token, change = ARGV[2], ARGV[3], ARGV[4]
call('EXISTS', timeout_of(owner)) -- a right that is missing is found before anything is written
begin()
local hold, holder, body = hold_of(owner, token), nil, nil
if not hold then
  holder, body = whole_holder(), 'nothold'
elseif change - hold.change < 0 then
  body = 'stale'
else
  touch_state()
  hold.change = change
  if hold.share == 'w' then
    call('HDEL', lock, owner .. ':write')
    call('HSET', lock, 'mode', 'read', owner, '1')
    call('HSET', holds, 'phase', token)
    keep_for_java(owner, hold.ends)
    mode, mine[3], hold.share, changed = 'read', token, 'r', true
  end
  write_hold(owner, hold)
  body = 'held'
  words = ' ' .. hold.count
end
