-- The rules of the queue and of the hand-over, function by function as in fairlock-core.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local LOOKED_AT_MAX = 64            -- members of the queue one call looks at
local WALKED_MAX = 1024             -- members; longer queues are not walked over to tell who is foreign
local BEATS_KEPT = 60000            -- ms, older beats are forgotten; twice D if that is more
local HEAD_SCORE = 30000            -- ms at most, what Java waits for a dead head of ours
local JAVA_PATIENCE = 8000          -- ms, a free lock is kept for a Java head nobody hears
local JAVA_PASSED = 60000           -- ms, a passed-over head stays so
local JAVA_PING = 1000              -- ms, between messages to a head that listens and waits

-- trying: somebody tries, and will not wait: who was silent for too long is dead, even if nobody was heard.
-- by_ttl: what the list has left tells when a waiter was last heard. Not for those who wait: they may find
-- out, and were perhaps cut off with the others.
local trying, by_ttl = false, false

-- DEL works without free memory, so it is the first write of whatever frees or hands on.
local function wipe()
  if not wiped then call('DEL', lock) end
  hold, free, wiped = {}, true, true
end

-- Request, lease and sure of a waiter's record, or nil: what does not match is no record.
local function read_record(text)
  if not text then return nil end
  local request, lease, sure = string.match(text, '^([0-9a-f]+) ([1-9]%d*) ([01])$')
  if not request or #request ~= 32 or #lease > 12 then return nil end
  return request, lease, sure
end

local function client_of(id)
  return string.sub(id, 1, 36)
end

-- Members that are not on record: foreign ones, as a rule.
local function foreign_waiting()
  return max(0, call('LLEN', queue) - call('ZCARD', order))
end

-- Whether a foreign member stands in the queue. An entry of ours that lost its record is none: what it
-- leaves behind has to end by itself.
local function has_foreign()
  local length = call('LLEN', queue)
  if length <= call('ZCARD', order) then return false end
  if length > WALKED_MAX then return true end
  for _, member in ipairs(call('LRANGE', queue, 0, -1)) do
    if not ours(member) then return true end
  end
  return false
end

-- How many of the foreign members stand before a waiter of ours: only these can still take anything from
-- its score. Those behind it must not raise it, for Java has to wait for it if it dies. LPOS walks
-- the list, about 11 ns a member, where there are foreign ones at all.
local function foreign_ahead(waiter, foreign)
  if foreign == 0 then return 0 end
  local place, before = call('LPOS', queue, waiter), call('ZRANK', order, waiter)
  if not place or not before then return foreign end
  return max(0, place - before)
end

local function foreign_near()
  if foreign_waiting() > 0 then return 1 end
  if not free and not ours(hold[1]) then return 1 end
  return 0
end

-- Not shortened while the lock is held: the number of the hold's last change, and the request that
-- got it, must live as long as the hold. `left`: the ms that the state has, where that is known.
local function renew_state(left)
  if not free and (left or call('PTTL', state)) > REGISTRY_TTL then return end
  keep_state(REGISTRY_TTL)
end

local function keep_registry(left)
  local till = int(now + REGISTRY_TTL)
  call('PEXPIREAT', order, till)
  call('PEXPIREAT', beats, till)
  renew_state(left)
end

local function keep_queue(ours_alone)
  if fleet or not ours_alone and has_foreign() then
    call('PERSIST', queue)
    call('PERSIST', scores)
  else
    local till = int(now + QUEUE_TTL)
    call('PEXPIREAT', queue, till)
    call('PEXPIREAT', scores, till)
  end
end

local function drop_order(owner)
  call('ZREM', order, owner)
  call('HDEL', state, owner)
end

-- A waiter of ours was taken out though it may live and return: it must not be taken for one that
-- comes after a loss of state.
local function note_removed()
  call('HSET', state, 'removed', now_ms)
  renew_state()
end

-- Forgets a waiter that others took out of list and scores.
local function drop_lost(owner)
  drop_order(owner)
  note_removed()
end

-- O(1) at the head, O(queue) elsewhere.
local function unlist(owner)
  if call('LINDEX', queue, '0') == owner then
    call('LPOP', queue)
  else
    call('LREM', queue, '0', owner)
  end
  call('ZREM', scores, owner)
end

-- Nobody heard for two heartbeats: the server slept or its clock jumped, so age says nothing
-- for D. Once for each silence.
local function notice_silence()
  local last = call('ZREVRANGE', beats, '0', '0', 'WITHSCORES')
  if not last[2] or now <= last[2] + 2 * HB then return end
  if call('HGET', state, 'silence') == last[2] then return end
  call('HSET', state, 'silence', last[2], 'amnesty', now + D)
  renew_state()
end

local function note_beat(client)
  notice_silence()
  call('ZREMRANGEBYSCORE', beats, '-inf', '(' .. int(now - max(BEATS_KEPT, 2 * D)))
  call('ZADD', beats, now_ms, client)
end

-- Beside the record stand: grant "token request", change "token number", amnesty, silence,
-- gather, removed (ms), given (order number), watch "since pinged score id".
local function read_watch()
  local text = call('HGET', state, 'watch')
  if not text then return nil end
  local since, pinged, score, id = string.match(text, '^(%d+) (%d+) (%S+) (.*)$')
  if not since then return nil end
  return { since = tonumber(since), pinged = tonumber(pinged), score = score, id = id }
end

local function set_watch(watch)
  call('HSET', state, 'watch',
    int(watch.since) .. ' ' .. int(watch.pinged) .. ' ' .. watch.score .. ' ' .. watch.id)
  renew_state()
end

-- While the lock is free: the first live waiter of ours becomes the holder; a Java head is told
-- and the lock left free for it. True when somebody who does not wait may take it.
-- What only this needs stands inside: most calls end at the first two lines.
local function next_holder()
  if not free then return false end
  local candidate = call('LINDEX', queue, '0')
  if not candidate then return true end
  wipe()

  local function dead_by_age(client, beat)
    if not beat then return true end
    if beat > now then
      beat = now
      call('ZADD', beats, now, client)
    end
    if now - beat <= D then return false end
    if not trying then notice_silence() end
    local known = call('HMGET', state, 'amnesty', 'silence')
    local amnesty, silence = whole(known[1]), tonumber(known[2] or nil)
    -- Further ahead than it was ever set: the clock was set back.
    if not amnesty or now >= amnesty or amnesty > now + D then return true end
    -- It helps who was alive when the silence began, not who had been silent before.
    if silence and beat + D < silence then return true end
    -- This one gets the lock, for a heartbeat. Until then the others that live are heard, and should it
    -- be dead so are they: one turn is lost, and not one for each.
    call('HSET', state, 'amnesty', int(math.min(amnesty, now + HB)))
    return false
  end

  -- Whether somebody without a record was heard not long ago, as far as beats, the list's TTL and its own
  -- score tell. Its heartbeats keep the score ahead of them; without one it would return anyway.
  local function may_live(client, score)
    local beat = tonumber(call('ZSCORE', beats, client) or nil)
    if beat and beat <= now and now - beat <= D then return true end
    -- Whoever waits need not judge by less than what it hears: the inbox is there, and D is short.
    if presence and not by_ttl then return true end
    local left = by_ttl and call('PTTL', queue)
    -- An entry renews the list's TTL only if its client's last beat did not half a period ago.
    if left and left >= 0 and left + D + HB < QUEUE_TTL then return false end
    return score and now <= tonumber(score) + D - math.min(HEAD_SCORE, FAIR_WAIT)
  end

  -- An entry of ours without a record, which was lost or has ended. Judged by what is left, in this very
  -- call: whoever only tries now and then may find it each time as if for the first time. One that lives finds
  -- out within a heartbeat and enters again, and gets D for that.
  local function judge_orphan(owner, score, client, sure)
    if presence and calling ~= client and sure ~= '1'
      and call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] == 0 then
      return 'forget'
    end
    -- All of them lost their records together, so the first one's D counts for the others,
    -- however many there are. A watch from another loss, or from a clock that was set back,
    -- counts for none.
    local watch = read_watch()
    if watch and (not ours(watch.id) or watch.since > now
      or now >= watch.since + D + JAVA_PASSED) then
      watch = nil
    end
    if watch and now >= watch.since + D or not (calling == client or may_live(client, score)) then
      return 'forget'
    end
    if not watch then set_watch({ since = now, pinged = now, score = '0', id = owner }) end
    return 'wait'
  end

  -- 'grant', 'remove', 'forget' (there is no record of it) or 'wait', and the last beat of its client.
  local function judge(owner, score, request, sure, gather)
    local client = client_of(owner)
    if not request or not call('ZSCORE', order, owner) then
      return judge_orphan(owner, score, client, sure)
    end
    gather = whole(gather)
    -- Further ahead than it was ever set: the clock was set back.
    if gather and now < gather and gather <= now + HB then return 'wait' end
    -- A call of its own is proof enough, and the reply needs no inbox.
    if presence and calling ~= client and sure ~= '1'
      and call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] == 0 then
      return 'remove'
    end
    local beat = tonumber(call('ZSCORE', beats, client) or nil)
    return dead_by_age(client, beat) and 'remove' or 'grant', beat
  end

  -- Who listens to Java's channel of a head. Those that are published to with SPUBLISH are counted apart.
  local NUMSUB = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'

  -- 'dropped', 'waiting' or 'passed'.
  local function offer_to_foreign(head, score)
    if not score then
      score = int(now + FAIR_WAIT)
      call('ZADD', scores, score, head)
      keep_queue()
    end
    local channel = 'redisson_lock__channel' .. sub(tokens, 20) .. ':' .. head
    local watch = read_watch()
    if watch and (watch.id ~= head or watch.score ~= score or watch.since > now
      or now >= watch.since + JAVA_PATIENCE + JAVA_PASSED) then
      watch = nil
    end
    -- Redisson's rule for stale heads. But a client whose clock is behind enters stale, and listens:
    -- it is told like any other, and has its time to come.
    local stale = tonumber(score) <= now
    if stale and (watch and now >= watch.since + JAVA_PATIENCE
      or call('PUBSUB', NUMSUB, channel)[2] == 0) then
      unlist(head)
      return 'dropped'
    end
    if not watch then
      set_watch({ since = now, pinged = now, score = score, id = head })
      call(publish, channel, '0')
      return 'waiting'
    end
    if stale or call('PUBSUB', NUMSUB, channel)[2] > 0 then
      if not stale then watch.since = now end
      if freed or now >= watch.pinged + JAVA_PING then
        watch.pinged = now
        call(publish, channel, '0')
      end
      set_watch(watch)
      return 'waiting'
    end
    return now < watch.since + JAVA_PATIENCE and 'waiting' or 'passed'
  end

  for _ = 1, LOOKED_AT_MAX do
    local known = call('HMGET', state, candidate, 'gather')
    local score = call('ZSCORE', scores, candidate)
    at_head = true
    local request, lease, sure = read_record(known[1])
    -- Only ours have records; their fields are longer than any other of the hash.
    if not (request and #candidate > 37) and not ours(candidate) then
      local offer = offer_to_foreign(candidate, score)
      if offer == 'waiting' then return false end
      candidate = nil
      if offer == 'passed' then
        candidate = call('ZRANGE', order, 0, 0)[1]
        if not candidate then return true end
        at_head, score = false, call('ZSCORE', scores, candidate)
        known = call('HMGET', state, candidate, 'gather')
        request, lease, sure = read_record(known[1])
      end
    end
    if candidate then
      if not at_head and not score then
        drop_lost(candidate)
      else
        local verdict, beat = judge(candidate, score, request, sure, known[2])
        if verdict == 'wait' then return false end
        if verdict == 'grant' then
          if exhausted then return false end
          foreign = call('ZCARD', scores) > call('ZCARD', order) and has_foreign()
          heir, heir_request, heir_lease, heir_beat = candidate, request, lease, math.min(beat, now)
          grant()
          hold, free = { candidate, '1' }, false
          return false
        end
        unlist(candidate)
        drop_order(candidate)
        -- Without a record state was lost: whoever returns has to find that out.
        if verdict == 'remove' then note_removed() end
        more = more + 2
      end
    end
    candidate = call('LINDEX', queue, '0')
    if not candidate then return true end
  end
  more = more + 1
  return false
end

-- Milliseconds until something may change without anybody's call, or false.
local function retry()
  if not free then
    local ttl = hold_ttl()
    return ttl and ttl + 1
  end
  local head = call('LINDEX', queue, '0')
  if not head then return false end
  local gather = whole(call('HGET', state, 'gather'))
  if gather and gather > now and gather <= now + HB then return gather - now end
  local watch = read_watch()
  local mine = ours(head)
  if not watch or watch.since > now or (watch.id ~= head and not (mine and ours(watch.id))) then return false end
  local left = watch.since + (mine and D or JAVA_PATIENCE) - now
  return left > 0 and left
end

