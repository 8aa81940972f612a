-- A waiting client lives. Creates no queue entry, whenever it arrives.
-- KEYS 1..7
-- ARGV  2 client   3 and on: waiters that are asked about, the oldest first
-- Reply beat, retry ms or none, foreign 0/1, granted request or none, token or none,
--       ttl ms or none, 1/0 for each waiter: stands in the queue
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
local client = ARGV[2]
calling = client
local length, scored, ordered = call('LLEN', queue), call('ZCARD', scores), call('ZCARD', order)
call('HLEN', state)
call('ZCARD', beats)

-- A first write that works without free memory.
local left = touch_state()
note_beat(client)

-- List and scores change together in every script, Java's included; lost keys and operators
-- bring them apart. O(queue), once for each such event.
local MENDED_MAX = 10000            -- members; a longer queue would keep the server from all others
local changed = false
if max(length, scored, ordered) <= MENDED_MAX and (length ~= scored or ordered > length) then
  changed = true
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
-- and hide foreign members.
local first, first_score
for _ = 1, LOOKED_AT_MAX do
  first = call('ZRANGE', order, '0', '0')[1]
  first_score = first and call('ZSCORE', scores, first)
  if not first or first_score then break end
  drop_lost(first)
  changed = true
end
local foreign = changed and foreign_waiting() or max(0, length - ordered)

-- Beyond what foreign members before it can take; as head exactly, else at least. Not below D, so
-- that who lives can be late.
local slack = max(math.min(HEAD_SCORE, FAIR_WAIT), D)
local queued, oldest_lease = '', nil
local head = call('LINDEX', queue, '0')
for i = 3, #ARGV do
  local waiter = ARGV[i]
  local score = first_score
  if waiter ~= first then score = call('ZSCORE', scores, waiter) end
  local request, lease = read_record(call('HGET', state, waiter))
  if i == 3 then oldest_lease = lease end
  local stands = request and score and (waiter == first or call('ZRANK', order, waiter))
  if stands then
    local kept = now + slack + FAIR_WAIT * foreign_ahead(waiter, foreign)
    if head == waiter or score - kept < 0 then call('ZADD', scores, kept, waiter) end
  end
  queued = queued .. (stands and ' 1' or ' 0')
end

-- Java computes the score of its new waiters from the tail's, and a client's heartbeats speak only
-- for its oldest: behind a stale tail Java would count as dead from the start.
local tail = (changed or length > 1) and call('LINDEX', queue, '-1')
if tail and tail ~= head and ours(tail) then
  local floor_score = now + FAIR_WAIT * (1 + foreign)
  local score = call('ZSCORE', scores, tail)
  if score and score - floor_score < 0 then call('ZADD', scores, floor_score, tail) end
end
keep_registry(left)
keep_queue(foreign == 0)

local handed = free
next_holder()
tidy()
if free then
  return now_ms .. ' ' .. more .. ' beat ' .. word(retry()) .. ' ' .. foreign_near() .. ' - - -' .. queued
end

local by, ttl = hold[1], hold_ttl()
local is_ours = ours(by)
local request = ttl and is_ours and client_of(by) == client and granted_request()
local granted = request and ' ' .. request .. ' ' .. last_token .. ' ' .. word(ttl) or ' - - -'
if not ttl and is_ours and oldest_lease then ttl = mend_hold(oldest_lease) end
if handed then foreign = foreign_waiting() end
return now_ms .. ' ' .. more .. ' beat ' .. word(ttl and ttl + 1) .. ' '
  .. ((foreign > 0 or not is_ours) and 1 or 0) .. granted .. queued
