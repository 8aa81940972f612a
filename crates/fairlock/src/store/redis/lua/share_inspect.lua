-- Look, change nothing. O(listed).
-- KEYS 1..7
-- ARGV  2 how many waiters to list
-- Reply shares, token or none, how many hold, permits in use, smallest and largest limit of those listed or none,
--       length of the line, how many holders are listed, count of a foreign holder and ttl ms of the lock where none
--       of ours holds or none; for each holder listed its count, share, token, ttl ms; for each listed waiter beat age
--       ms or none, order number or none, share; {the holders listed, the waiters listed, the field of the
--       foreign holder}
local HOLDERS_MIN = 64              -- holders that are listed where fewer waiters are asked for
local HOLDERS_MAX = 1000            -- holders that are listed at most
local MAX = 9007199254740991
local asked = ARGV[2] + 0
local reply, words = { '' }, {}
local least, most = nil, nil

local function note_limit(share)
  local _, limit = permits_of(share)
  if not limit then return end
  limit = limit + 0
  least, most = math.min(least or limit, limit), max(most or limit, limit)
end

-- Those of another lock of this name do not hold this one.
if not mode or rw and last_owner and not last_held then
  leased = 0
end
local holding, listed_holders = max(0, fields - 1), 0
if leased > 0 then
  local found = call('ZRANGE', leases, now_ms, '+inf', 'BYSCORE', 'LIMIT', '0',
    math.min(HOLDERS_MAX, max(HOLDERS_MIN, asked)), 'WITHSCORES')
  local over = call('ZRANGE', leases, '-inf', '(' .. now_ms, 'BYSCORE', 'LIMIT', '0', HOLDERS_MAX)
  holding = max(0, holding - #over)
  for _, record in ipairs(over[1] and not rw and call('HMGET', holds, unpack(over)) or {}) do
    local hold = read_hold(record)
    if hold then used = max(0, used - permits_of(hold.share)) end
  end
  local owners, in_lock = {}, {}
  for at = 1, #found, 2 do
    owners[#owners + 1] = found[at]
    in_lock[#in_lock + 1] = mode == 'write' and found[at] .. ':write' or found[at]
  end
  local records = owners[1] and call('HMGET', holds, unpack(owners))
  local values = owners[1] and call('HMGET', lock, unpack(in_lock))
  for at, owner in ipairs(owners) do
    local hold = values[at] and read_hold(records[at])
    if hold then
      note_limit(hold.share)
      words[#words + 1] = hold.count .. ' ' .. hold.share .. ' ' .. hold.token .. ' '
        .. word(end_of(found[2 * at]) - now)
      reply[#reply + 1] = cut(owner)
    end
  end
  listed_holders = #words
end
if asked > 0 and waiting > 0 then
  local line = call('ZRANGE', order, '0', ARGV[2] - 1, 'WITHSCORES')
  for at = 1, #line, 2 do
    local owner, number = line[at], tonumber(line[at + 1])
    local beat = tonumber(call('ZSCORE', beats, sub(owner, 1, 36)) or nil)
    local _, _, _, share = read_record(call('HGET', state, owner))
    note_limit(share or '')
    words[#words + 1] = word(beat and math.min(max(0, now - beat), MAX)) .. ' '
      .. (number >= 0 and number <= MAX and string.format('%.0f', number) or '-') .. ' ' .. (share or 'w')
    reply[#reply + 1] = cut(owner)
  end
end
local count, left = '-', '-'
if leased == 0 and holding > 0 and fields <= MENDED_MAX then
  local all, stranger, value = call('HGETALL', lock), nil, nil
  for at = 1, #all, 2 do
    local one = all[at]
    if one ~= 'mode' and not (stranger and stranger < one) then stranger, value = one, all[at + 1] end
  end
  reply[#reply + 1] = stranger and cut(stranger)
  count = word(whole(value) or 1)
  left = word(ttl_of(lock))
end
reply[1] = now_ms .. ' 0 shares ' .. (last_token or '-') .. ' ' .. holding .. ' ' .. word(used) .. ' '
  .. word(least) .. ' ' .. word(most) .. ' ' .. waiting .. ' ' .. listed_holders
  .. ' ' .. count .. ' ' .. left
  .. (#words > 0 and ' ' .. table.concat(words, ' ') or '')
return #reply == 1 and reply[1] or reply
