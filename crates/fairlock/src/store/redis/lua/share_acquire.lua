-- Take a share of a lock, or stand in its line.
-- KEYS 1..10 (8 = the request's burial, 9 = the queue of fair locks, 10 = the line of the other kind with shares)
-- ARGV  2 owner   3 request, 32 hex   4 lease ms   5 not after, epoch ms
--       6 T = try, W = wait; after it s = reachable without a look at its inbox, o = owner shared by several
--         requests, and the order number of an entry that returns
--       7 share: r, w, or permits/limit
-- Reply granted, token, ttl ms, and an earlier request if that has it | queued, order, retry ms or none, foreign 0/1, line's length on entry
--     | busy, ttl ms or none | self, count | late | buried
local returning = tonumber(string.match(how, '%d+')) or 0
shared = string.find(how, 'o', 1, true) ~= nil
trying = sub(how, 1, 1) == 'T'
if call('EXISTS', KEYS[8]) == 1 then return now_ms .. ' 0 buried' end
-- A right that is missing is found before anything is written; who comes anew has looked at the key already.
if timeout and returning > 0 then call('EXISTS', timeout) end
-- Lines of several kinds under one name would be served without regard to each other.
if not trying and (waiting > 0 or returning > 0 or not fits(share)) and not held_share()
  and call('EXISTS', KEYS[9], KEYS[10]) > 0 then
  local of = call('EXISTS', KEYS[9]) == 1 and 'fair' or rw and 'semaphore' or 'rw'
  return redis.error_reply('FAIRLOCK_KIND in use: ' .. of)
end
begin()
-- Permits without leases, or a lock without an end that nobody has a lease of: somebody took keys away.
if mode and (not rw and fields - 1 ~= leased or rw and leased == 0 and call('PTTL', lock) == -1) then mend() end
local hold, number, length = held_share(), nil, nil
serving = false
if not hold then
  -- One of which the lease is over, or the record was lost.
  if own_end() then end_shares({ owner }) end
  if waiting > 0 or returning > 0 then
    serving = trying
  elseif fits(share) then
    got = { request, take_share(owner, request, share, lease), lease }
  end
end

if not hold and not trying and not got then
  local record = request .. ' ' .. lease .. (string.find(how, 's', 1, true) and ' 1 ' or ' 0 ') .. share
  number = waiting > 0 and whole(call('ZSCORE', order, owner))
  if number and read_record(notes[6]) then
    call('HSET', state, owner, record)
  else
    -- Nothing is known of any waiter of ours. The last number given does not count: it may be that of somebody
    -- who came after the loss.
    if returning > 0 and waiting == 0 and call('HLEN', state) == (notes[5] and 1 or 0) then
      gather = now + HB
      call('HSET', state, 'gather', gather)
    end
    local given = whole(notes[5]) or 0
    if returning > 0 then
      number = returning
    else
      if number then waiting = waiting - call('ZREM', order, owner) end
      local last = waiting > 0 and tonumber(call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]) or 0
      if last >= 9007199254740992 then
        waiting = waiting - call('ZREMRANGEBYSCORE', order, '9007199254740992', '+inf')
        last = tonumber(call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]) or 0
      end
      number = max(now_us + 0, max(last, given) + 1)
    end
    notes[5] = string.format('%.0f', max(given, number))
    waiting = waiting + call('ZADD', order, string.format('%.0f', number), owner)
    call('HSET', state, owner, record, 'given', notes[5])
  end
  if waiting == WIDE then
    call('HSET', state, FILLER, '')
    call('HDEL', state, FILLER)
  end
  length, caller, calling, serving = waiting, owner, sub(owner, 1, 36), true
  local beat = tonumber(call('ZSCORE', beats, calling) or nil)
  local fresh = beat and beat <= now and now - beat < HB / 2
  if not fresh then note_beat(calling) end
  if fresh and length > 1 then keep_state() else keep_registry() end
end
