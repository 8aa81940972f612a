-- What the service of the line knows.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- trying: somebody tries, and will not wait: who was silent for too long is dead, even if nobody was heard.
-- caller, calling: the owner and the client whose own call this is; they hear by the reply.
-- serving: whether the line is served now. open: whether somebody who does not wait may take what fits.
-- last_minted: the last token that this call has given.
local trying, caller, calling, serving, open = false, nil, nil, true, true
local gather, amnesty, silence = whole(notes[1]), whole(notes[2]), whole(notes[3])
-- guest: until when the free lock is left, or was left last, to Java's waiters, who stand in no line. invited: whether
-- this call leaves it to them.
local GUEST = 30                    -- ms
local guest, invited = rw and whole(notes[7]), false
local last_minted, minting = nil, false
-- Who leaves the line, and what is written of those who get a share: fields of the lock, records, ends of leases.
local out, granted, lock_fields, records, ends_of = {}, 0, { 'mode', false }, {}, {}
-- What the caller has got: request, token, ttl.
local got = nil
-- What was read of a record behind its request, and what is written there of a reader; most of a line have the same.
local wishes, read_tail = {}, nil
-- The end of a lease, of one that lasts this long; as text, because a number is made text with each use.
local last_ttl, till, till_text = nil, nil, nil
-- Of each client, what was asked in this call: its last beat and whether its inbox has a subscriber.
local heard, listens = {}, {}
-- What the reply says behind its tag.
local words = ''
-- Messages by client in order of the clients' first one; others, each with its channel.
local told, grants_of, taken = {}, {}, {}

-- Request, lease, sure and share of a waiter's record, or nil: what does not match is no record.
local function read_record(text)
  if not text then return nil end
  local request, rest = sub(text, 1, 32), sub(text, 33)
  local wish = wishes[rest]
  if wish == nil then
    local lease, sure, share = string.match(rest, '^ ([1-9]%d*) ([01]) (%S+)$')
    local is_wish = lease and #lease <= 12
      and (rw and (share == 'r' or share == 'w') or not rw and permits_of(share) ~= nil)
    wish = is_wish and { lease, sure, share } or false
    wishes[rest] = wish
  end
  -- To look for what is no hexadecimal digit would cost three times as much.
  if not wish or #request ~= 32 or not tonumber(request, 16) then return nil end
  return request, wish[1], wish[2], wish[3]
end

-- Whether nothing that is held stands in the way.
local function fits(share)
  if share == 'w' then return not mode end
  if share == 'r' then return mode ~= 'write' end
  local n, limit = permits_of(share)
  return used + n - limit <= 0
end

-- Whether the lock is left to Java's waiters just now. Further ahead than it was ever set: the clock was set back. A
-- token since then: the line was lost, and somebody came who found nobody before him.
local function left_to_guests()
  return guest and not mode and now < guest and guest <= now + GUEST
    and not (last_token and last_token - (guest - GUEST) * 1000 >= 0)
end

-- Gives a share; it is written with all others of this call. Those who read at the same time have one token. Java's
-- readers alone are no phase: its writers mint nothing.
local function take_share(owner, request, share, ttl)
  local token = share == 'r' and mode == 'read' and leased + granted > 0 and mine[3]
  if not token or granted == 0 and not whole(token) then
    token = now_us
    local last = last_minted or last_token
    if last and now_us - last <= 0 then token = string.format('%.0f', last + 1) end
    last_minted, minting = token, true
  end
  local at, field, value = 2 * granted + 1, owner, '1'
  if ttl ~= last_ttl then
    last_ttl, till = ttl, now + ttl
    till_text = till .. ''
    if not first_end or till < first_end then first_end = till end
    if not last_end or till > last_end then last_end, last_owner = till, owner end
  end
  if share == 'r' then
    if mine[3] ~= token or not read_tail then mine[3], read_tail = token, ' ' .. token .. ' 0 1 r' end
    mode, records[at], records[at + 1] = 'read', owner, request .. read_tail
  else
    records[at], records[at + 1] = owner, request .. ' ' .. token .. ' 0 1 ' .. share
    if share == 'w' then
      mode, field = 'write', owner .. ':write'
    else
      local n, limit = permits_of(share)
      mode, used, value = 'permits', used + n, n
      count_limit(limit, 1)
    end
  end
  lock_fields[at + 2], lock_fields[at + 3] = field, value
  ends_of[at], ends_of[at + 1] = till_text, owner
  granted = granted + 1
  return token
end

local function keep_state()
  call('PEXPIREAT', state, now + REGISTRY_TTL)
end

local function keep_registry()
  call('PEXPIREAT', order, now + REGISTRY_TTL)
  call('PEXPIREAT', beats, now + REGISTRY_TTL)
  keep_state()
end

-- Nobody heard for two heartbeats: the server slept or its clock jumped, so age says nothing
-- for D. Once for each silence.
local function notice_silence()
  local last = tonumber(call('ZREVRANGE', beats, '0', '0', 'WITHSCORES')[2])
  if not last or now <= last + 2 * HB or silence == last then return end
  silence, amnesty = last, now + D
  touch_state()
  call('HSET', state, 'silence', last, 'amnesty', amnesty)
  keep_state()
end

