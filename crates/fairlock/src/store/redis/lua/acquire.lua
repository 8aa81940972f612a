-- Take a fair lock, or stand in its queue.
-- KEYS 1..8 (8 = the request's burial)
-- ARGV  8 owner   9 request, 32 hex   10 lease ms   11 T = try, W = wait
--      12 order number of a returning entry, or 0   13 not after, epoch ms
--      14 1 = reachable without a look at its inbox   15 1 = owner shared by several requests
-- Reply {..., 'granted', token, ttl ms} | {..., 'queued', order, retry ms or nil, foreign 0/1,
--        queue length on entry}
--     | {..., 'busy', ttl ms or nil} | {..., 'self', count} | {..., 'late'} | {..., 'buried'}
local owner, request, lease = ARGV[8], ARGV[9], tonumber(ARGV[10])
local returning, sure, shared = tonumber(ARGV[12]), ARGV[14], ARGV[15] == '1'

if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
if now > tonumber(ARGV[13]) then return { now, 0, 'late' } end
if call('EXISTS', KEYS[8]) == 1 then return { now, 0, 'buried' } end

local function granted(ttl)
  return { now, more, 'granted', int(last_token), ttl }
end

local function take_now(foreign)
  if shared then call('HLEN', state) end -- a key of a wrong type is found here
  write_token(next_token(), foreign)
  take(owner, lease)
  if shared then
    call('HSET', state, 'grant', int(last_token) .. ' ' .. request)
    keep_state(max(REGISTRY_TTL, lease + D))
  end
  return granted(lease)
end

if not free then
  local count = held(owner)
  if count then
    if shared and granted_request() ~= request then
      return { now, 0, 'self', tonumber(count) }
    end
    if call('PTTL', lock) == -1 then call('PEXPIREAT', lock, now + lease) end
    if not last_token or last_token == 0 then write_token(max(1, now_us), false) end
    return granted(hold_ttl() or 0)
  end
end

local length = call('LLEN', queue)
if free and length == 0 and returning == 0 then return take_now(false) end

if ARGV[11] == 'T' then
  check_types()
  trying, by_ttl = true, true
  if next_holder() then return take_now(has_foreign()) end
  return { now, more, 'busy', not free and hold_ttl() }
end

-- Reads of each key, so that one of a wrong type is found before anything is written.
local listed = call('ZSCORE', scores, owner)
local had_order = call('ZSCORE', order, owner)
local known = call('HMGET', state, owner, 'given')
local record, given = read_record(known[1]), whole(known[2]) or 0
local own_beat = tonumber(call('ZSCORE', beats, client_of(owner)) or nil)
local new_record = request .. ' ' .. ARGV[10] .. ' ' .. sure
-- Numbers that cannot have been given are none: no reply could say them.
local own_number = tonumber(had_order or nil)
if own_number and (own_number < 1 or own_number >= 9007199254740992 or own_number % 1 ~= 0) then
  call('ZREM', order, owner)
  had_order = false
end
local number = had_order

if listed and had_order and record then
  call('HSET', state, owner, new_record)
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
  local ahead, least = foreign_waiting(), 0
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
      local head = call('LINDEX', queue, 0)
      local watch = head and not ours(head) and read_watch()
      -- By the score as well: the same owner may have entered anew since it was offered the lock.
      if watch and watch.id == head and call('ZSCORE', scores, head) == watch.score then
        call('LINSERT', queue, 'AFTER', head, owner)
      else
        call('LPUSH', queue, owner)
      end
    end
  else
    local tail = call('LINDEX', queue, -1)
    least = tail and tonumber(call('ZSCORE', scores, tail) or 0) or 0
    local last = call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2]
    if last and tonumber(last) >= 9007199254740992 then
      call('ZREMRANGEBYSCORE', order, '9007199254740992', '+inf')
      last = call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2]
    end
    -- Who is out of the queue just now has no number in it, and the clock may have gone back since
    -- that was given.
    number = max(now_us, max(tonumber(last) or 0, given) + 1)
    call('RPUSH', queue, owner)
  end
  given = max(given, number)
  number = int(number)
  call('ZADD', order, number, owner)
  if returning > 0 then ahead = foreign_ahead(owner, foreign_waiting()) end
  call('ZADD', scores, max(least, now + FAIR_WAIT * (1 + ahead)), owner)
  call('HSET', state, owner, new_record, 'given', int(given))
end

local fresh = own_beat and own_beat <= now and now - own_beat < HB / 2
if not fresh then note_beat(client_of(owner)) end
local n_queue, n_order = call('LLEN', queue), call('ZCARD', order)
if fresh and n_order ~= 1 and n_queue ~= 1 and call('ZCARD', scores) ~= 1 then
  renew_state()
else
  keep_registry()
  keep_queue()
end

if free then
  caller, calling = owner, client_of(owner)
  next_holder()
  if held(owner) then return granted(lease) end
  return { now, more, 'queued', number, retry(), foreign_near(), n_queue }
end
-- Held by somebody else: nothing was handed on, so the counts still hold.
local foreign = (n_queue > n_order or not ours(holder())) and 1 or 0
mend_hold(lease)
return { now, 0, 'queued', number, retry(), foreign, n_queue }
