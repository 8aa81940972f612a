-- An attempt to get a share was given up: its place goes, or the hold that it got.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV  2 owner   3 request   4 burial ms, 0 = no copy is under way   5 1 = shared owner
-- Reply left | freed | nothing
local owner, request, bury = ARGV[2], ARGV[3], ARGV[4]
begin()
touch_state()
local holder, body = nil, 'nothing'
local stands = read_record(notes[6])
if stands == request or not stands and call('ZSCORE', order, owner) then
  waiting = waiting - call('ZREM', order, owner)
  call('HDEL', state, owner)
  -- Whoever was to look when the lock is left to Java's waiters no more may be the one that leaves.
  if guest and now < guest then
    guest = now
    call('HSET', state, 'guest', now_ms)
  end
  body = 'left'
end
local hold = held_share()
if hold and hold.request == request then
  end_shares({ owner }, true)
  body = 'freed'
end
if bury ~= '0' then call('SET', KEYS[8], '1', 'PXAT', now + bury) end
-- The line is served also if nothing was freed: those behind may want less than whoever left.
