-- How the lock is held: what the operations on shares know before they write.
-- KEYS as in share_keys.lua
-- ARGV 2 whose hold is looked at, where an operation is about one
-- Reply as in head.lua
local LOOKED_AT_FIELDS = 16384      -- fields that are looked at one by one
local me = ARGV[2] or ''

-- When a lease ends, or nil: others may have written a fraction.
local function end_of(score)
  local at = tonumber(score or nil)
  return at and math.floor(at)
end

-- Keys of a wrong type are found here, before anything is written.
local ends = call('ZRANGE', leases, '0', '0', 'WITHSCORES')
-- Our leases: how many, the first and the last to end, and who has that one.
local first_end, leased, last_end, last_owner = end_of(ends[2]), 0, nil, nil
if first_end then
  local last = call('ZREVRANGE', leases, '0', '0', 'WITHSCORES')
  last_owner, last_end = last[1], end_of(last[2])
  leased = last_owner == ends[1] and 1 or call('ZCARD', leases)
end
-- read or write, or permits of a semaphore; false while nobody holds anything.
local last_field = last_owner or ''
local known = call('HMGET', lock, 'mode', me, me .. ':write', last_field, last_field .. ':write', ends[1] or '')
local mode, former_mode, fields = known[1], known[1], call('HLEN', lock)
-- Whether whoever has the last lease is in the lock. If not, the leases are those of a former lock.
local last_held = last_owner and known[mode == 'write' and 5 or 4]

-- What is under the name, unless it is a lock of this kind or nothing. Nothing else decides that: no operation changes
-- or deletes a hash with a field that such a lock cannot have, whatever its size.
local function not_a_lock()
  if not mode then
    return fields == 1 and 'in use: fair' or fields > 1 and string.format('a hash with %.0f fields, not a lock', fields)
  elseif mode ~= 'read' and mode ~= 'write' and mode ~= 'permits' then
    return 'a hash with an unknown field `mode`, not a lock'
  elseif rw ~= (mode ~= 'permits') then
    return rw and 'in use: semaphore' or 'in use: rw'
  elseif fields == 1 then
    return 'a hash with nothing but a field `mode`, not a lock'
  elseif last_end and last_end >= 9007199254740992 then
    return 'a hash with a lease that never ends, in `fairlock_' .. (rw and 'rw' or 'sem') .. '_leases`, not a lock'
  elseif last_held and fields - 1 == leased and (mode == 'write' and leased or known[6] and 1) == 1 then
    return nil -- each field has its lease, as far as the first and the last tell
  elseif fields > LOOKED_AT_FIELDS then
    return string.format('a hash with %.0f fields, more than are looked at, not a lock', fields)
  end
  -- A holder is a UUID and a number, in a transaction of Java with more parts; of a semaphore it is one of ours.
  local x4 = '%x%x%x%x'
  local holder_form = rw and '^' .. x4 .. x4 .. string.rep('%-' .. x4, 4) .. x4 .. x4 .. ':%-?%d+%f[:%z]'
    or '^' .. x4 .. x4 .. '%-' .. x4 .. '%-8%x%x%x%-[89ab]%x%x%x%-' .. x4 .. x4 .. x4 .. ':[1-9]%d*$'
  local all, writer, writes = call('HGETALL', lock), nil, mode ~= 'write'
  for at = 1, #all, 2 do
    local field, count = all[at], all[at + 1]
    if field ~= 'mode' then
      local holder = field
      if mode == 'write' and sub(field, -6) == ':write' then holder, writes = sub(field, 1, -7), true end
      -- Beside a writer nobody is in the lock but itself, as a reader of Java's.
      if not string.find(holder, holder_form) or mode == 'write' and (writer or holder) ~= holder
        or #count > 10 or not string.find(count, '^[1-9]%d*$') then
        return 'a hash with a field `mode` and others that are no holders, not a lock'
      end
      writer = holder
    end
  end
  return not writes and 'a hash with a field `mode` of a writer, and without one, not a lock'
end

local refused = not_a_lock()
if refused then return redis.error_reply('FAIRLOCK_KIND ' .. refused) end
