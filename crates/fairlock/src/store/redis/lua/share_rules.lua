-- The rules of read-write locks and semaphores, function by function as in fairlock-core: who holds, the line of
-- those who wait, and who of them lives.
-- KEYS as in share_facts.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local LOOKED_AT_MAX = 64            -- waiters that are passed over, and leases that are ended, in one call
local GRANTS_MAX = 128              -- grants of one call
local BEATS_KEPT = 60000            -- ms, older beats are forgotten; twice D if that is more
local MENDED_HOLD = 30000           -- ms at least, a hold of ours whose lease was lost
local MENDED_MAX = 1024             -- fields of the lock; more are not walked over to compare them with the leases

-- trying: somebody tries, and will not wait: who was silent for too long is dead, even if nobody was heard.
-- caller, calling: the owner and the client whose own call this is; they hear by the reply.
local trying, caller, calling = false, nil, nil
-- What changed: who holds, or until when.
local changed = false
-- Messages by client in order of the clients' first one, and those about holds that were taken by force.
local told, grants_of, taken = {}, {}, {}
-- What was asked about a client in this call.
local listens, heard = {}, {}

local function int(number)
  return string.format('%.0f', number)
end

-- A number for a reply, or what stands for none.
local function word(number)
  return number and int(number) or '-'
end

-- A number of ours, or nil: others may have written anything.
local function whole(text)
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local number = tonumber(text)
  return number < 9007199254740992 and number or nil
end

local function score_of(key, member)
  return tonumber(call('ZSCORE', key, member) or nil)
end

local function client_of(id)
  return sub(id, 1, 36)
end

-- The permits in a share and their limit, or nothing.
local function permits_of(share)
  local n, limit = string.match(share, '^([1-9]%d*)/([1-9]%d*)$')
  if n and #n <= 10 and #limit <= 10 then return n + 0, limit end
end

local function is_share(share)
  if rw then return share == 'r' or share == 'w' end
  return permits_of(share) ~= nil
end

-- Request, lease, sure and share of a waiter's record, or nil: what does not match is no record.
local function read_record(text)
  if not text then return nil end
  local request, lease, sure, share = string.match(text, '^([0-9a-f]+) ([1-9]%d*) ([01]) (%S+)$')
  if not request or #request ~= 32 or #lease > 12 or not is_share(share) then return nil end
  return request, lease, sure, share
end

-- A holder's record, or nil.
local function read_hold(text)
  if not text then return nil end
  local request, token, change, count, share = string.match(text, '^([0-9a-f]+) (%d+) (%d+) (%d+) (%S+)$')
  if not request or #request ~= 32 or not whole(token) or not is_share(share) then return nil end
  return { request = request, token = token, change = change, count = count, share = share }
end

local function write_hold(owner, hold)
  call('HSET', holds, owner,
    hold.request .. ' ' .. hold.token .. ' ' .. hold.change .. ' ' .. hold.count .. ' ' .. hold.share)
end

-- The field of a hold in the lock.
local function field_of(owner, share)
  return share == 'w' and owner .. ':write' or owner
end

-- Java believes in a reader for as long as this key exists.
local tagged = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local function timeout_of(owner)
  return tagged .. ':' .. owner .. ':rwlock_timeout:1'
end

-- A first write that works without free memory, and changes nothing: no record has an empty name.
local function touch_state()
  call('HDEL', state, '')
end

local function keep_state()
  call('PEXPIREAT', state, int(now + REGISTRY_TTL))
end

local function keep_registry()
  local till = int(now + REGISTRY_TTL)
  call('PEXPIREAT', order, till)
  call('PEXPIREAT', beats, till)
  keep_state()
end

local function raise_token(token)
  if not last_token or last_token - token < 0 then write_token(token) end
end

local function can_mint()
  return last_token ~= '9007199254740991'
end

-- Fields that are not ours: Java's holds.
local function has_foreign()
  return rw and mode and call('HLEN', lock) - 1 > call('ZCARD', leases)
end

local function first_end()
  local first = call('ZRANGE', leases, '0', '0', 'WITHSCORES')
  return tonumber(first[2]), first[1]
end

-- Permits in use. Where that is not known any more, the lock itself tells.
local function used_permits()
  if not mode then return 0 end
  local used = whole(call('HGET', holds, 'used'))
  if used then return used end
  local fields = call('HGETALL', lock)
  used = 0
  for at = 2, #fields, 2 do used = used + (whole(fields[at]) or 0) end
  return used
end

-- How many holders name a limit.
local function count_limit(limit, by)
  local field = 'limit:' .. limit
  local named = (whole(call('HGET', holds, field)) or 0) + by
  if named > 0 then call('HSET', holds, field, int(named)) else call('HDEL', holds, field) end
end

-- Whether nothing that is held stands in the way.
local function fits(share)
  if share == 'w' then return not mode end
  if share == 'r' then return mode ~= 'write' end
  local n, limit = permits_of(share)
  return used_permits() + n - limit <= 0
end

-- Ends a hold, in the lock first, which is the truth: where a slot moves a script may be stopped at a key that it has
-- just removed. The next token is larger than its own, whatever became of the token's key. A hold of which the record is
-- lost is one of the field that is there.
local function end_share(owner)
  local hold = read_hold(call('HGET', holds, owner))
  changed = true
  local share = hold and hold.share or rw and call('HEXISTS', lock, owner .. ':write') == 1 and 'w' or nil
  local used = not rw and used_permits()
  local freed = not rw and mode and whole(call('HGET', lock, owner)) or 0
  local was_there = mode and call('HDEL', lock, field_of(owner, share)) == 1
  if not mode or call('HLEN', lock) <= 1 then
    call('DEL', lock)
    mode = false
  elseif share == 'w' and was_there then
    call('HSET', lock, 'mode', 'read')
    mode = 'read'
  end
  if rw and share ~= 'w' then call('DEL', timeout_of(owner)) end
  call('HDEL', holds, owner)
  call('ZREM', leases, owner)
  if call('EXISTS', leases) == 0 then
    call('DEL', holds)
  elseif not rw then
    call('HSET', holds, 'used', int(max(0, used - freed)))
    if hold then
      local _, limit = permits_of(share)
      count_limit(limit, -1)
    end
  end
  if hold then raise_token(hold.token) end
end

-- Ends the holds whose leases are over, some of them in each call. Without a mode nobody holds anything: somebody
-- took the lock's key away, and what we know of its holders goes with it.
local function end_leases()
  for _ = 1, LOOKED_AT_MAX do
    local ends, owner = first_end()
    if not ends then return end
    if ends >= now then break end
    end_share(owner)
  end
  if not mode then
    call('DEL', leases, holds)
    return
  end
  local ends = first_end()
  if ends and ends < now and more % 2 == 0 then more = more + 1 end
end

-- What every operation that writes begins with. While somebody waits, leases end when the line is served.
local function begin()
  touch_state()
  more = 0
  if waiting == 0 then end_leases() end
end

-- The hold of an owner, unless its lease is over: its record, with the end of the lease.
local function held_share(owner)
  if not mode then return nil end
  local ends = score_of(leases, owner)
  if not ends or ends < now then return nil end
  local hold = read_hold(call('HGET', holds, owner))
  if not hold or call('HEXISTS', lock, field_of(owner, hold.share)) == 0 then return nil end
  hold.ends = ends
  return hold
end

-- The same if it is the hold with this token. Where its record was lost, the field alone names it.
local function hold_of(owner, token)
  local hold = held_share(owner)
  if hold then return hold.token == token and hold or nil end
  if not mode or call('HEXISTS', holds, owner) == 1 then return nil end
  local known = call('HMGET', lock, owner, owner .. ':write')
  local count = whole(known[1] or known[2])
  if not count or count == 0 then return nil end
  local share = known[2] and 'w' or 'r'
  if not rw then
    share = int(count) .. '/' .. int(count)
    count_limit(int(count), 1)
    count = 1
  end
  hold = { request = string.rep('0', 32), token = token, change = '0', count = int(count), share = share }
  hold.ends = now + max(MENDED_HOLD, call('PTTL', lock))
  write_hold(owner, hold)
  call('ZADD', leases, int(hold.ends), owner)
  changed = true
  return hold
end

-- The token of those who read now, if one of ours does. Java's readers alone are no phase: its writers mint nothing.
local function phase()
  if mode ~= 'read' then return nil end
  local last = call('ZREVRANGE', leases, '0', '0')[1]
  if not last or call('HEXISTS', lock, last) == 0 then return nil end
  local token = call('HGET', holds, 'phase')
  return whole(token) and token
end

-- Writes a hold, and returns its token. Those who read at the same time have one.
local function take_share(owner, request, share, ttl)
  local token = share == 'r' and phase()
  if not token then
    mint()
    token = last_token
  end
  local ends = int(now + ttl)
  if share == 'w' then
    call('HSET', lock, 'mode', 'write', owner .. ':write', '1')
    mode = 'write'
  elseif share == 'r' then
    call('HSET', lock, 'mode', 'read', owner, '1')
    call('HSET', holds, 'phase', token)
    call('SET', timeout_of(owner), '1', 'PXAT', ends)
    mode = 'read'
  else
    local n, limit = permits_of(share)
    call('HSET', holds, 'used', int(used_permits() + n))
    count_limit(limit, 1)
    call('HSET', lock, 'mode', 'permits', owner, int(n))
    mode = 'permits'
  end
  call('ZADD', leases, ends, owner)
  write_hold(owner, { request = request, token = token, change = '0', count = '1', share = share })
  changed = true
  return token
end

local function leave_line(owner)
  call('ZREM', order, owner)
  call('HDEL', state, owner)
end

-- A waiter of ours was taken out though it may live and return: it must not be taken for one that
-- comes after a loss of state.
local function note_removed()
  call('HSET', state, 'removed', now_ms)
  keep_state()
end

local function remove_dead(owner)
  leave_line(owner)
  note_removed()
  more = more + 2
end

-- Nobody heard for two heartbeats: the server slept or its clock jumped, so age says nothing
-- for D. Once for each silence.
local function notice_silence()
  local last = tonumber(call('ZREVRANGE', beats, '0', '0', 'WITHSCORES')[2])
  if not last or now <= last + 2 * HB then return end
  if whole(call('HGET', state, 'silence')) == last then return end
  call('HSET', state, 'silence', int(last), 'amnesty', int(now + D))
  keep_state()
end

local function note_beat(client)
  notice_silence()
  call('ZREMRANGEBYSCORE', beats, '-inf', '(' .. int(now - max(BEATS_KEPT, 2 * D)))
  call('ZADD', beats, now_ms, client)
end

-- Whether the inbox of a client has a subscriber; each is asked about once.
local function inbox(client)
  if listens[client] == nil then
    listens[client] = call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] > 0
  end
  return listens[client]
end

-- What the age of a client's last beat says: 'alive', 'dead', or 'spared' and until when.
local function age(client)
  local beat = score_of(beats, client)
  if not beat then return 'dead' end
  if beat > now then
    beat = now
    call('ZADD', beats, now_ms, client)
  end
  heard[client] = beat
  if now - beat <= D then return 'alive' end
  if not trying then notice_silence() end
  local known = call('HMGET', state, 'amnesty', 'silence')
  local amnesty, silence = whole(known[1]), whole(known[2])
  -- Further ahead than it was ever set: the clock was set back.
  if not amnesty or now >= amnesty or amnesty > now + D then return 'dead' end
  -- It helps who was alive when the silence began, not who had been silent before.
  if silence and beat + D < silence then return 'dead' end
  return 'spared', amnesty
end

local function dead_by_age(client)
  local verdict, until_ms = age(client)
  if verdict ~= 'spared' then return verdict == 'dead' end
  -- This one gets its share, for a heartbeat. Until then the others that live are heard, and should it
  -- be dead so are they: one turn is lost, and not one for each.
  call('HSET', state, 'amnesty', int(math.min(until_ms, now + HB)))
  return false
end

-- 'grant', 'remove' or 'wait'.
local function judge(owner, sure, gather)
  local client = client_of(owner)
  -- Further ahead than it was ever set: the clock was set back.
  if gather and now < gather and gather <= now + HB then return 'wait' end
  -- A call of its own is proof enough, and the reply needs no inbox.
  if presence and calling ~= client and sure ~= '1' and not inbox(client) then return 'remove' end
  return dead_by_age(client) and 'remove' or 'grant'
end

-- Whether one that is not served yet, and stands before others that could be, is dead by its age as well as by its
-- inbox: it is passed over for good.
local function is_surely_dead(owner, sure)
  local client = client_of(owner)
  if presence and sure ~= '1' and inbox(client) or calling == client then return false end
  return age(client) == 'dead'
end

-- Gives a waiter its share, for as long as its client's last beat vouches for it, unless this is its own call.
local function grant_share(owner, request, lease, share)
  local client, ttl = client_of(owner), lease
  if caller ~= owner then
    ttl = max((heard[client] or 0) + D - now, HB)
    ttl = int(math.min(ttl, lease))
  end
  leave_line(owner)
  local token = take_share(owner, request, share, ttl)
  if caller == owner then return end
  if not grants_of[client] then
    grants_of[client] = {}
    told[#told + 1] = client
  end
  local mine = grants_of[client]
  mine[#mine + 1] = { request, token, ttl }
end

-- Serves the line from its head for as long as what the head wants fits. True when somebody who does not wait may
-- take what fits.
local function serve_line()
  end_leases()
  local looks, grants = 0, 0
  while true do
    local head = call('ZRANGE', order, '0', '0')[1]
    if not head then return true end
    if looks == LOOKED_AT_MAX or grants == GRANTS_MAX then
      if more % 2 == 0 then more = more + 1 end
      return false
    end
    local known = call('HMGET', state, head, 'gather')
    local request, lease, sure, share = read_record(known[1])
    if not request then
      -- Its record was lost. It returns to its place when it notices.
      leave_line(head)
      note_removed()
      looks = looks + 1
    elseif not fits(share) then
      -- It is looked at only where that may help those behind it, or a caller that tries.
      if mode == 'write' or not trying and call('ZCARD', order) == 1 or not is_surely_dead(head, sure) then
        return false
      end
      remove_dead(head)
      looks = looks + 1
    else
      local verdict = judge(head, sure, whole(known[2]))
      if verdict == 'wait' or verdict == 'grant' and not can_mint() then return false end
      if verdict == 'grant' then
        grant_share(head, request, lease, share)
        grants = grants + 1
      else
        remove_dead(head)
        looks = looks + 1
      end
    end
  end
end

-- Once nobody holds or waits our own keys go; not right after a waiter was removed as dead: it
-- may return, and must not be taken for one that comes after a loss of state. And not while the last
-- order number is ahead of the clock, which would then give smaller ones.
local function tidy()
  if call('EXISTS', order, leases) > 0 then return end
  local known = call('HMGET', state, 'removed', 'given')
  if not known[1] and (whole(known[2]) or 0) - now_us <= 0 then call('DEL', order, state, beats) end
end

local function pass_shares_on()
  serve_line()
  tidy()
end

-- Whoever has all of it, Java included; others would not have been in the way of who asks.
local function whole_holder()
  if mode ~= 'write' then return nil end
  local fields = call('HGETALL', lock)
  for at = 1, #fields, 2 do
    if sub(fields[at], -6) == ':write' then return sub(fields[at], 1, -7) end
  end
end

-- The reply that names who holds it, if anybody does.
local function naming(text, holder)
  return holder and { text, holder } or text
end

-- Milliseconds until something may change without anybody's call, or false.
local function retry_shares_ms()
  if call('EXISTS', order) == 0 then return false end
  local at = first_end()
  at = at and at + 1
  if not at and mode then
    local left = call('PTTL', lock)
    at = left >= 0 and now + left + 1
  end
  local gather = whole(call('HGET', state, 'gather'))
  if gather and gather > now and gather <= now + HB then at = at and math.min(at, gather) or gather end
  return at and max(0, at - now)
end

-- The lock ends with the last of our leases; beside Java it is never shortened, for Java's may be longer. What we
-- know of the holders is kept a little longer than they are.
local function keep_holds()
  local last = tonumber(call('ZREVRANGE', leases, '0', '0', 'WITHSCORES')[2])
  if not last or not mode then return end
  -- To end it now would be to delete it, and somebody holds it until the end of this very millisecond.
  local till = max(last, now + 1)
  if not (has_foreign() and call('PTTL', lock) >= till - now) then call('PEXPIREAT', lock, int(till)) end
  call('PEXPIREAT', leases, int(last + D))
  call('PEXPIREAT', holds, int(last + D))
end

-- What every operation ends with: the lives of the keys, then messages. Java's waiters stand in no line; they are told
-- when something ends that may let them in: all of them, or by the last reader one.
local function finish(reply)
  if changed then keep_holds() end
  for _, message in ipairs(taken) do call(publish, message[1], message[2]) end
  for _, client in ipairs(told) do
    local mine = grants_of[client]
    local text = 'g1 ' .. mine[1][1] .. ' ' .. mine[1][2] .. ' ' .. now_ms .. ' ' .. mine[1][3]
    if mine[2] then
      local words = { 'g2 ' .. now_ms }
      for _, grant in ipairs(mine) do words[#words + 1] = table.concat(grant, ' ') end
      text = table.concat(words, ' ')
    end
    call(publish, inbox_prefix .. client, text)
  end
  if rw and former_mode and former_mode ~= mode then
    local message = former_mode == 'write' and '1' or not mode and '0'
    -- Without the right to the channel Java's waiters look when the lock ends; what was done is done.
    if message then redis.pcall(publish, 'redisson_rwlock:' .. tagged, message) end
  end
  return reply
end

