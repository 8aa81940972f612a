-- Who holds a share, and until when.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local LOOKED_AT_MAX = 64            -- waiters that are passed over, and leases that are ended, in one call
local MENDED_HOLD = 30000           -- ms at least, a hold of ours whose lease was lost
local MENDED_MAX = 1024             -- fields of the lock; more are not walked over

-- What changed: who holds, or until when. ended: whether a hold of ours was ended. kept: how long leases and records are kept now, if nothing was lost.
local changed, ended = false, false
local kept = last_end and (mine[1] or mine[2] or mine[3]) and kept_until(last_end)
-- How many holders name a limit, where that was asked or changed.
local named = {}

-- A number of ours, or nil: others may have written anything.
local function whole(text)
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local number = tonumber(text)
  return number < 9007199254740992 and number or nil
end

-- The permits in a share and their limit, or nothing.
local function permits_of(share)
  local n, limit = string.match(share, '^([1-9]%d*)/([1-9]%d*)$')
  if n and #n <= 10 and #limit <= 10 then return n + 0, limit end
end

-- A holder's record, or nil: what does not match is no record.
local function read_hold(text)
  if not text then return nil end
  local request, token, change, count, share = string.match(text, '^([0-9a-f]+) (%d+) (%d+) (%d+) (%S+)$')
  if not request or #request ~= 32 or not whole(token) or count - 2147483647 > 0 then return nil end
  if rw and share ~= 'r' and share ~= 'w' or not rw and not permits_of(share) then return nil end
  return { request = request, token = token, change = change, count = count, share = share }
end

local function write_hold(owner, hold)
  call('HSET', holds, owner,
    hold.request .. ' ' .. hold.token .. ' ' .. hold.change .. ' ' .. hold.count .. ' ' .. hold.share)
end

local function timeout_of(owner)
  return tagged .. ':' .. owner .. ':rwlock_timeout:1'
end

-- Java takes a reader for alive as long as this key is there.
local function keep_for_java(owner, ends)
  call('SET', timeout_of(owner), '1', 'PXAT', ends)
end

-- Lets the lock live as long as Java's readers, by their timeout keys: what Java's own unlock does. A reader without one is
-- dead, and its field ends with the lock. Of a reader with more entries some keys are not looked at, so the lock's life is
-- not shortened beside it.
local function keep_for_readers_of_java()
  if fields > MENDED_MAX then return end
  local all, longest, left, unseen = call('HGETALL', lock), 0, call('PTTL', lock), false
  for at = 1, #all, 2 do
    local entries = whole(all[at + 1]) or 0
    unseen = unseen or entries > LOOKED_AT_MAX
    for hold = 1, math.min(entries, LOOKED_AT_MAX) do
      longest = max(longest, call('PTTL', tagged .. ':' .. all[at] .. ':rwlock_timeout:' .. hold))
    end
  end
  longest = longest == 0 and MENDED_HOLD or math.min(longest, LONGEST)
  if left == -1 or left > longest and not unseen then call('PEXPIREAT', lock, now + longest) end
end

local function count_limit(limit, by)
  if not named[limit] then named[limit] = whole(call('HGET', holds, 'limit:' .. limit)) or 0 end
  named[limit] = max(0, named[limit] + by)
end

local function raise_token(token)
  if not last_token or last_token - token < 0 then write_token(token) end
end

local function used_in(all)
  local sum = 0
  for at = 2, #all, 2 do sum = sum + (whole(all[at]) or 0) end
  return sum
end

-- Permits in use. Where that is not known any more, the lock itself tells.
local used = mode and whole(mine[2]) or 0
if not rw and mode and not whole(mine[2]) then used = used_in(call('HGETALL', lock)) end

-- Ends holds that have leases; in_lock if each of them is known to be in the lock. In the lock first, which is the
-- truth: where a slot moves a script may be stopped at a key that it has just removed. The next token is larger than
-- theirs, whatever became of the token's key. A hold of which the record is lost is one of the field that is there.
local function end_shares(owners, in_lock)
  local records = call('HMGET', holds, unpack(owners))
  local values = not rw and mode and call('HMGET', lock, unpack(owners)) or {}
  local out, timeouts, raised, wrote = {}, {}, nil, false
  for at, owner in ipairs(owners) do
    local hold = read_hold(records[at])
    local share = hold and hold.share or rw and call('HEXISTS', lock, owner .. ':write') == 1 and 'w'
    out[at] = share == 'w' and owner .. ':write' or owner
    if share == 'w' then
      wrote = true
    elseif rw then
      timeouts[#timeouts + 1] = timeout_of(owner)
    else
      used = max(0, used - (whole(values[at]) or 0))
      local _, limit = permits_of(share or '')
      if limit then count_limit(limit, -1) end
    end
    if hold and not (raised and raised - hold.token >= 0) then raised = hold.token end
  end
  changed, ended, leased = true, true, leased - #owners
  local is_last = in_lock and leased <= 0 and fields - 1 == #owners
  if mode and not is_last then
    local removed = call('HDEL', lock, unpack(out))
    fields = fields - removed
    if fields <= 1 then
      call('DEL', lock)
      mode, fields = false, 0
    elseif wrote and removed > 0 then
      call('HSET', lock, 'mode', 'read')
      mode = 'read'
    end
  end
  if leased <= 0 or not mode then
    timeouts[#timeouts + 1], timeouts[#timeouts + 2] = leases, holds
    if is_last then timeouts[#timeouts + 1] = lock end
    leased, first_end, last_end, last_owner, kept, mine, named = 0, nil, nil, nil, nil, {}, {}
  else
    call('ZREM', leases, unpack(owners))
    local gone, counts = owners, { 'used', used }
    if not rw then
      gone = { unpack(owners) }
      for limit, by in pairs(named) do
        if by == 0 then
          gone[#gone + 1] = 'limit:' .. limit
        else
          counts[#counts + 1], counts[#counts + 2] = 'limit:' .. limit, by
        end
      end
      call('HSET', holds, unpack(counts))
    end
    call('HDEL', holds, unpack(gone))
    first_end = end_of(call('ZRANGE', leases, '0', '0', 'WITHSCORES')[2])
    local last = call('ZREVRANGE', leases, '0', '0', 'WITHSCORES')
    last_owner, last_end = last[1], end_of(last[2])
  end
  if #timeouts > 0 then call('DEL', unpack(timeouts)) end
  if is_last then mode, fields = false, 0 end
  if raised then raise_token(raised) end
end

-- Without a mode nobody holds anything: somebody took the lock's key away, and what we know of its holders goes with
-- it. The same if the lock is another now, which Java has made: ours are all in it, or none.
local function forget_holds()
  call('DEL', leases, holds)
  leased, first_end, last_end, last_owner, kept, mine, named = 0, nil, nil, nil, nil, {}, {}
end

-- Ends the holds whose leases are over, some of them in each call.
local function end_leases()
  local over = call('ZRANGE', leases, '-inf', '(' .. now_ms, 'BYSCORE', 'LIMIT', '0', LOOKED_AT_MAX)
  if over[1] then end_shares(over) end
  if not mode and leased > 0 then forget_holds() end
  if first_end and first_end < now and more % 2 == 0 then more = more + 1 end
end

-- What every operation that writes begins with. While somebody waits, leases end when the line is served.
local function begin()
  more = 0
  if not mode or rw and last_owner and not last_held then
    forget_holds()
  elseif waiting == 0 and first_end and first_end < now then
    end_leases()
  end
end

-- A first write that works without free memory, and changes nothing: no record has an empty name.
local function touch_state()
  call('HDEL', state, '')
end

-- The end of my lease, if I have one that my record or the lock knows of.
local function own_end()
  return leased > 0 and (mine[1] or known[2] or known[3]) and end_of(call('ZSCORE', leases, me))
end

-- The hold of who asks, unless its lease is over: its record, with the end of the lease.
local function held_share()
  local till = mode and own_end()
  local hold = till and till >= now and read_hold(mine[1])
  if not hold or not known[hold.share == 'w' and 3 or 2] then return nil end
  hold.ends = till
  return hold
end

-- Fields that are not ours: Java's holds.
local function has_foreign()
  return rw and mode and fields - 1 > leased
end

