-- A writer reads from now on, and those come in who wait to read next. Its token becomes that of all who read with it.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 request, 32 hex
-- Reply held, count | nothold, {holder} if one has all of it
local owner, token = ARGV[2], ARGV[3]
call('EXISTS', timeout_of(owner)) -- a right that is missing is found before anything is written
begin()
local hold, holder, body = hold_of(owner, token, ARGV[4]), nil, nil
if not hold then
  holder, body = whole_holder(), 'nothold'
else
  touch_state()
  -- In whatever order changes of the count arrive: a reader does not become a writer again.
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
