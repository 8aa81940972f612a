-- Take a fair lock, or stand in its queue.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV  2 owner   3 request, 32 hex   4 lease ms   5 not after, epoch ms
--       6 T = try, W = wait; after it s = reachable without a look at its inbox, o = owner shared by several
--         requests, and the order number of an entry that returns
-- Reply granted, token, ttl ms | queued, order, retry ms or none, foreign 0/1, queue length on entry
--     | busy, ttl ms or none | self, count | late | buried
local returning = tonumber(string.match(how, '%d+')) or 0
shared = string.find(how, 'o', 1, true) ~= nil

local function granted(ttl)
  return now_ms .. ' ' .. more .. ' granted ' .. last_token .. ' ' .. ttl
end

if not free then
  if hold[1] == owner then
    if shared and granted_request() ~= request then return now_ms .. ' 0 self ' .. hold[2] end
    if call('PTTL', lock) == -1 then call('PEXPIREAT', lock, now + lease) end
    if not last_token or last_token - 0 == 0 then write_token(now_us) end
    return granted(word(hold_ttl() or 0))
  end
end

if shared then call('HLEN', state) end -- a key of a wrong type is found before anything is written
if free and returning == 0 and call('LLEN', queue) == 0 then return take_now() end

if sub(how, 1, 1) == 'T' then
  check_types()
  trying, by_ttl = true, true
  if next_holder() then
    foreign = has_foreign()
    return take_now()
  end
  return now_ms .. ' ' .. more .. ' busy ' .. word(not free and hold_ttl())
end

-- Reads of each key, so that one of a wrong type is found before anything is written.
call('LLEN', queue)
local listed = call('ZSCORE', scores, owner)
local had_order = call('ZSCORE', order, owner)
local known = call('HMGET', state, owner, 'given')
given = whole(known[2]) or 0
local own_beat = tonumber(call('ZSCORE', beats, client_of(owner)) or nil)
-- Numbers that cannot have been given are none: no reply could say them.
local own_number = tonumber(had_order or nil)
if own_number and (own_number < 1 or own_number >= 9007199254740992 or own_number % 1 ~= 0) then
  call('ZREM', order, owner)
  had_order = false
end
number = had_order

if listed and had_order and read_record(known[1]) then
  call('HSET', state, owner, record)
else
  -- Nothing is known of any waiter of ours. A watch does not count: meeting an entry whose record
  -- is gone is what starts one. Nor does the last number given: it may be that of somebody who came
  -- after the loss.
  if returning > 0 and call('EXISTS', order) == 0
    and call('HLEN', state) == call('HEXISTS', state, 'watch') + (known[2] and 1 or 0) then
    call('HSET', state, 'gather', now + HB)
  end
  -- It stands there, and its number was lost. The list still says who came first; the numbers of
  -- those that have returned already do not.
  local stood = returning > 0 and listed and not had_order and call('LPOS', queue, owner)
  if returning > 0 or shared or listed then unlist(owner) end
  if had_order or known[1] then drop_order(owner) end
  if returning > 0 then
    number = returning
    local placed = -1
    if stood then
      local next_one = call('LINDEX', queue, stood)
      placed = next_one and call('LINSERT', queue, 'BEFORE', next_one, owner)
        or call('RPUSH', queue, owner)
    else
      local previous = call('ZREVRANGEBYSCORE', order, '(' .. int(returning), '-inf', 'LIMIT', 0, 1)[1]
      placed = previous and call('LINSERT', queue, 'AFTER', previous, owner) or -1
    end
    if placed < 1 then
      local head = call('LINDEX', queue, '0')
      local watch = head and not ours(head) and read_watch()
      -- By the score as well: the same owner may have entered anew since it was offered the lock.
      if watch and watch.id == head and call('ZSCORE', scores, head) == watch.score then
        call('LINSERT', queue, 'AFTER', head, owner)
      else
        call('LPUSH', queue, owner)
      end
    end
    given = max(given, number)
    number = int(number)
    call('ZADD', order, number, owner)
    local ahead = foreign_ahead(owner, foreign_waiting())
    call('ZADD', scores, now + FAIR_WAIT * (1 + ahead), owner)
    call('HSET', state, owner, record, 'given', int(given))
  else
    local tail = call('LINDEX', queue, '-1')
    least = tail and tonumber(call('ZSCORE', scores, tail) or 0) or 0
    last = call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]
    if last and tonumber(last) >= 9007199254740992 then
      call('ZREMRANGEBYSCORE', order, '9007199254740992', '+inf')
      last = call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]
    end
    last = tonumber(last) or 0
    enter_last()
  end
end

local fresh = own_beat and own_beat <= now and now - own_beat < HB / 2
if not fresh then note_beat(client_of(owner)) end
if not length then length, ordered = call('LLEN', queue), call('ZCARD', order) end
if fresh and ordered ~= 1 and length ~= 1 and call('ZCARD', scores) ~= 1 then
  renew_state()
else
  keep_registry()
  keep_queue()
end

if free then
  caller, calling = owner, client_of(owner)
  next_holder()
  if hold[1] == owner then return granted(lease) end
  return now_ms .. ' ' .. more .. ' queued ' .. number .. ' ' .. word(retry()) .. ' '
    .. foreign_near() .. ' ' .. length
end
-- Held by somebody else: nothing was handed on, so the counts still hold.
local near = (length > ordered or not ours(hold[1])) and ' 1 ' or ' 0 '
mend_hold(lease)
return now_ms .. ' 0 queued ' .. number .. ' ' .. word(retry()) .. near .. length
