-- Serves the line from its head for as long as what the head wants fits: at most 128 grants, and 64 that are passed
-- over. It is read in slices, and what is asked about clients is asked about those of a slice at once.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local GRANTS_MAX = 128              -- grants of one call
local SLICE = 64                    -- waiters that are read at once, after the first
local slice, known_of, at, read, looks, removed = {}, nil, 0, 0, 0, false
-- A pause that ends further ahead than it was ever set: the clock was set back.
local gathers = gather and now < gather and gather <= now + HB
-- The client that was last found alive, whichever of its waiters is asked about. For how long a grant of that lease
-- lasts, if it is not the reply to its own call.
local alive, of_client, of_lease, lasts = nil, nil, nil, nil

-- The clients of the slice that are not in `known` yet.
local function others_than(known)
  local clients, seen = {}, {}
  for i = at, #slice do
    local client = sub(slice[i], 1, 36)
    if known[client] == nil and not seen[client] then
      seen[client], clients[#clients + 1] = true, client
    end
  end
  return clients
end

local function inbox(client)
  if listens[client] == nil then
    local clients, channels = others_than(listens), {}
    for i, one in ipairs(clients) do channels[i] = inbox_prefix .. one end
    local counts = call('PUBSUB', 'NUMSUB', unpack(channels))
    for i, one in ipairs(clients) do listens[one] = counts[2 * i] > 0 end
  end
  return listens[client]
end

-- What the age of a client's last beat says: 'alive', 'dead', or 'spared' and until when.
local function age(client)
  if heard[client] == nil then
    local clients = others_than(heard)
    local found = call('ZMSCORE', beats, unpack(clients))
    for i, one in ipairs(clients) do heard[one] = tonumber(found[i] or nil) or false end
  end
  local beat = heard[client]
  if not beat then return 'dead' end
  if beat > now then
    beat = now
    touch_state()
    call('ZADD', beats, now_ms, client)
    heard[client] = beat
  end
  if now - beat <= D then return 'alive' end
  if not trying then notice_silence() end
  -- Further ahead than it was ever set: the clock was set back.
  if not amnesty or now >= amnesty or amnesty > now + D then return 'dead' end
  -- It helps who was alive when the silence began, not who had been silent before.
  if silence and beat + D < silence then return 'dead' end
  return 'spared', amnesty
end

-- Whether Java's waiters come first this time: if there are any, once in a second, which the last token tells.
local function lets_guests_in()
  if not rw or mode then return false end
  if last_token and (now_us - last_token < 0 or sub(last_token, 1, -7) == clock[1]) then return false end
  -- After one time ours get the lock before the next, however late somebody looks.
  if guest and (not last_token or last_token - guest * 1000 < 0) then return false end
  local counted = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  return (redis.pcall('PUBSUB', counted, 'redisson_rwlock:' .. tagged)[2] or 0) > 0
end

while true do
  if at == #slice then
    read = read + at
    if read >= waiting then break end
    slice = call('ZRANGE', order, read, read == 0 and 0 or read + SLICE - 1)
    if not slice[1] then break end
    known_of, at = call('HMGET', state, unpack(slice)), 0
  end
  if looks == LOOKED_AT_MAX or granted == GRANTS_MAX then
    if more % 2 == 0 then more = more + 1 end
    open = false
    break
  end
  at = at + 1
  local head = slice[at]
  local client = sub(head, 1, 36)
  local wants, ttl, sure, share = read_record(known_of[at])
  local goes = not wants
  if goes and gathers then
    open = false
    break
  elseif goes and not (gather and gather <= now and now - gather < HB) then
    -- Its record was lost, and perhaps those of others. They return to their places when they notice, with their next
    -- heartbeats; nobody is served before.
    gather, open = now + HB, false
    touch_state()
    call('HSET', state, 'gather', gather)
    keep_state()
    break
  elseif goes then
    -- It had its time.
  elseif not fits(share) then
    -- It is looked at only where that may help those behind it, or a caller that tries: it is passed over for good.
    if mode == 'write' or not trying and read + at == waiting
      or presence and sure ~= '1' and inbox(client) or calling == client or age(client) ~= 'dead' then
      open = false
      break
    end
    goes, more = true, more + 2
  elseif gathers then
    open = false
    break
  else
    if client ~= alive then
      -- A call of its own is proof enough, and the reply needs no inbox.
      goes = presence and calling ~= client and sure ~= '1' and not inbox(client)
      local verdict, until_ms
      if not goes then verdict, until_ms = age(client) end
      if verdict == 'dead' then
        goes = true
      elseif verdict == 'spared' then
        -- This one gets its share, for a heartbeat. Until then the others that live are heard, and should it
        -- be dead so are they: one turn is lost, and not one for each.
        amnesty = math.min(until_ms, now + HB)
        touch_state()
        call('HSET', state, 'amnesty', amnesty)
      elseif not goes and (not presence or calling == client or listens[client]) then
        alive = client
      end
    end
    if goes then
      more = more + 2
    elseif (last_minted or last_token) == '9007199254740991' then
      open = false
      break
    elseif lets_guests_in() then
      guest, invited, open = now + GUEST, true, false
      touch_state()
      call('HSET', state, 'guest', guest)
      keep_state()
      -- Whoever is next looks when that is over.
      taken[#taken + 1] = { inbox_prefix .. client, 'w1 ' .. wants }
      break
    else
      if caller ~= head then
        -- For as long as its client's last beat vouches for it.
        if client ~= of_client or ttl ~= of_lease then
          local vouched = max(heard[client] + D - now, HB)
          of_client, of_lease, lasts = client, ttl, ttl - vouched > 0 and vouched .. '' or ttl
        end
        ttl = lasts
      end
      out[#out + 1] = head
      local token = take_share(head, wants, share, ttl)
      if head == me then got = { wants, token, ttl } end
      if caller ~= head then
        local grants = grants_of[client]
        if not grants then
          grants = { first = { wants, token, ttl } }
          grants_of[client], told[#told + 1] = grants, client
        end
        grants[#grants + 1] = wants .. ' ' .. token .. ' ' .. ttl
      end
    end
  end
  if goes then
    out[#out + 1], looks, removed = head, looks + 1, true
  end
end

-- They may live and return, and must not be taken for ones that come after a loss of state.
if removed then
  touch_state()
  call('HSET', state, 'removed', now_ms)
  notes[4] = now_ms
  keep_state()
end
