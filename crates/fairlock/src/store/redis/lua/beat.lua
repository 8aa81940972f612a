-- A waiting client lives. Creates no queue entry, whenever it arrives.
-- KEYS 1..7
-- ARGV  8 client   9 and on: waiters that are asked about, the oldest first
-- Reply {..., 'beat', retry ms or nil, foreign 0/1, granted request or nil, token or nil,
--        ttl ms or nil, 1/0 for each waiter: stands in the queue}
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
local client = ARGV[8]
calling = client
local length = call('LLEN', queue)
local scored = call('ZCARD', scores)
local ordered = call('ZCARD', order)
call('HLEN', state)
call('ZCARD', beats)

-- A first write that works without free memory.
touch_state()
note_beat(client)

-- List and scores change together in every script, Java's included; lost keys and operators
-- bring them apart. O(queue), once for each such event.
local MENDED_MAX = 10000            -- members; a longer queue would keep the server from all others
if max(length, scored, ordered) <= MENDED_MAX and (length ~= scored or ordered > length) then
  local listed = {}
  local members = call('LRANGE', queue, 0, -1)
  for _, member in ipairs(members) do
    if listed[member] then
      -- Keep the first copy, drop the later ones from the tail.
      call('LREM', queue, -1, member)
    end
    listed[member] = true
  end
  for _, member in ipairs(call('ZRANGE', scores, 0, -1)) do
    if not listed[member] then call('ZREM', scores, member) end
  end
  for member in pairs(listed) do
    call('ZADD', scores, 'NX', now + FAIR_WAIT, member)
  end
  for _, member in ipairs(call('ZRANGE', order, 0, -1)) do
    if not listed[member] then drop_lost(member) end
  end
end

-- Java knows nothing of the order, and takes out heads: left there, they would count as waiting
-- and hide foreign members (foreign_waiting).
for _ = 1, LOOKED_AT_MAX do
  local first = call('ZRANGE', order, 0, 0)[1]
  if not first or call('ZSCORE', scores, first) then break end
  drop_lost(first)
end

-- Beyond what foreign members before it can take; as head exactly, else at least. Not below D, so
-- that who lives can be late.
local slack = max(math.min(HEAD_SCORE, FAIR_WAIT), D)
local queued = {}
local foreign = foreign_waiting()
local head = call('LINDEX', queue, 0)
for i = 9, #ARGV do
  local waiter = ARGV[i]
  local score = call('ZSCORE', scores, waiter)
  local stands = score and call('ZSCORE', order, waiter) and read_record(call('HGET', state, waiter)) ~= nil
  if stands then
    local kept = now + slack + FAIR_WAIT * foreign_ahead(waiter, foreign)
    if head == waiter or tonumber(score) < kept then call('ZADD', scores, kept, waiter) end
  end
  queued[#queued + 1] = stands and 1 or 0
end

-- Java computes the score of its new waiters from the tail's, and a client's heartbeats speak only
-- for its oldest: behind a stale tail Java would count as dead from the start.
local tail = call('LINDEX', queue, -1)
if tail and tail ~= head and ours(tail) then
  local floor_score = now + FAIR_WAIT * (1 + foreign)
  local score = call('ZSCORE', scores, tail)
  if score and tonumber(score) < floor_score then call('ZADD', scores, floor_score, tail) end
end
keep_registry()
keep_queue()
next_holder()
tidy()

local request, token, ttl = false, false, false
if not free then
  local by = holder()
  request = ours(by) and client_of(by) == client and granted_request()
  ttl = hold_ttl()
  if request and ttl then
    token = int(last_token)
  else
    request, ttl = false, false
  end
end
local _, oldest_lease = read_record(ARGV[9] and call('HGET', state, ARGV[9]))
if oldest_lease then mend_hold(oldest_lease) end

local reply = { now, more, 'beat', retry(), foreign_near(), request, token, ttl }
for i, stands in ipairs(queued) do reply[8 + i] = stands end
return reply
