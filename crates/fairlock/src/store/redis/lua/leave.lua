-- An attempt to get a fair lock was given up: its queue entry goes, or the hold that it got.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV  2 owner   3 request   4 burial ms, 0 = no copy is under way   5 1 = shared owner
-- Reply left | freed | nothing
local owner, request, bury, shared = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
check_types()
local listed = call('ZSCORE', scores, owner)
local waiting = read_record(call('HGET', state, owner))

touch_state()
local body = 'nothing'
if waiting == request or (not waiting and listed) then
  unlist(owner)
  drop_order(owner)
  body = 'left'
end
-- Also when it left: a record outlives its entry when Java takes that out, and then the request
-- may have got the lock past the empty queue.
if hold[1] == owner then
  local granted = granted_request()
  if granted == request or (not granted and not shared) then
    wipe()
    freed = true
    body = 'freed'
  end
end
if bury ~= '0' then call('SET', KEYS[8], '1', 'PXAT', now + bury) end
next_holder()
tidy()
return now_ms .. ' ' .. more .. ' ' .. body
