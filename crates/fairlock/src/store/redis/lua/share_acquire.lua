-- Take a share of a lock, or stand in its line.
-- KEYS 1..10 (8 = the request's burial, 9 = the queue of fair locks, 10 = the line of the other kind with shares)
-- ARGV  2 owner   3 request, 32 hex   4 lease ms   5 not after, epoch ms
--       6 T = try, W = wait; after it s = reachable without a look at its inbox, o = owner shared by several
--         requests, and the order number of an entry that returns
--       7 share: r, w, or permits/limit
-- Reply granted, token, ttl ms | queued, order, retry ms or none, foreign 0/1, line's length on entry
--     | busy, ttl ms or none | self, count | late | buried
local share = ARGV[7]
local client = client_of(owner)
local returning = tonumber(string.match(how, '%d+')) or 0
shared = string.find(how, 'o', 1, true) ~= nil
trying = sub(how, 1, 1) == 'T'
more = 0
if call('EXISTS', KEYS[8]) == 1 then return now_ms .. ' 0 buried' end
if share == 'r' then call('EXISTS', timeout_of(owner)) end -- a right that is missing is found before anything is written

-- Whether permits are held under another limit than the one that the caller was admitted with.
local function other_limit()
  local _, limit = permits_of(share)
  if not limit or not mode then return 0 end
  local named = whole(call('HGET', holds, 'limit:' .. limit)) or 0
  return call('ZCARD', leases) ~= named and 256 or 0
end

local function granted(token, ttl)
  more = more + other_limit()
  return finish(now_ms .. ' ' .. more .. ' granted ' .. token .. ' ' .. int(ttl))
end

-- The caller has a hold already: this is another copy of the request that got it, or another request of an
-- owner that several share.
local function held_before(hold)
  if shared and hold.request ~= request then return finish(now_ms .. ' ' .. more .. ' self ' .. hold.count) end
  return granted(hold.token, hold.ends - now)
end

if waiting == 0 then end_leases() end
local hold = held_share(owner)
if hold then return held_before(hold) end
-- Of which the lease is over.
if call('ZSCORE', leases, owner) then end_share(owner) end

if waiting == 0 and returning == 0 then
  if fits(share) then return granted(take_share(owner, request, share, lease), lease) end
elseif trying then
  local open = serve_line()
  -- Another request of the same owner may have been waiting.
  hold = held_share(owner)
  if hold then return held_before(hold) end
  if open and fits(share) then return granted(take_share(owner, request, share, lease), lease) end
end
if trying then
  local ends = first_end()
  local left = ends and max(0, ends - now)
  if not left and mode then
    left = call('PTTL', lock)
    left = left >= 0 and left
  end
  return finish(now_ms .. ' ' .. more .. ' busy ' .. word(left))
end

-- Lines of several kinds under one name would be served without regard to each other.
if call('EXISTS', KEYS[9], KEYS[10]) > 0 then
  local of = call('EXISTS', KEYS[9]) == 1 and 'fair' or rw and 'semaphore' or 'rw'
  return redis.error_reply('FAIRLOCK_KIND in use: ' .. of)
end

local known = call('HMGET', state, owner, 'given')
local number = score_of(order, owner)
local record = request .. ' ' .. lease .. (string.find(how, 's', 1, true) and ' 1 ' or ' 0 ') .. share
if number and read_record(known[1]) then
  call('HSET', state, owner, record)
else
  -- Nothing is known of any waiter of ours. The last number given does not count: it may be that of somebody
  -- who came after the loss.
  if returning > 0 and call('EXISTS', order) == 0 and call('HLEN', state) == (known[2] and 1 or 0) then
    call('HSET', state, 'gather', int(now + HB))
  end
  local given = whole(known[2]) or 0
  number = returning
  if returning == 0 then
    if number then call('ZREM', order, owner) end
    local last = tonumber(call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2])
    if last and last >= 9007199254740992 then
      call('ZREMRANGEBYSCORE', order, '9007199254740992', '+inf')
      last = tonumber(call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2])
    end
    number = max(now_us + 0, max(last or 0, given) + 1)
  end
  call('ZADD', order, int(number), owner)
  call('HSET', state, owner, record, 'given', int(max(given, number)))
end

local length = call('ZCARD', order)
local beat = score_of(beats, client)
local fresh = beat and beat <= now and now - beat < HB / 2
if not fresh then note_beat(client) end
if fresh and length > 1 then keep_state() else keep_registry() end
caller, calling = owner, client
serve_line()
hold = held_share(owner)
if hold then return granted(hold.token, lease) end
local foreign_near = has_foreign() and 1 or 0
more = more + other_limit()
return finish(now_ms .. ' ' .. more .. ' queued ' .. int(number) .. ' ' .. word(retry_shares_ms())
  .. ' ' .. foreign_near .. ' ' .. length)
