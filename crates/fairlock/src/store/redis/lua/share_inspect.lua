-- Look, change nothing. O(holders and waiters).
-- KEYS 1..7
-- ARGV  2 how many waiters to list
-- Reply shares, token or none, how many hold, permits in use, smallest and largest limit or none, length of the line,
--       how many holders are listed, count of a foreign holder and ttl ms of the lock where none of ours holds or none;
--       for each holder listed its count, share, token, ttl ms; for each listed waiter beat age ms or none, order number
--       or none, share; {the holders listed, the waiters listed, the field of the foreign holder}
local HOLDERS_MAX = 64              -- holders that are listed where fewer waiters are asked for
local MAX = 9007199254740991
local asked = ARGV[2] + 0
local mine, foreign_ones, records = holders()
local reply, words = { '' }, {}
local least, most, used = nil, nil, 0

local function note_limit(share)
  local n, limit = permits_of(share)
  if not n then return 0 end
  limit = limit + 0
  least, most = math.min(least or limit, limit), max(most or limit, limit)
  return n
end

for at, owner in ipairs(mine) do
  local hold = records[owner]
  used = used + note_limit(hold.share)
  if at <= max(HOLDERS_MAX, asked) then
    words[#words + 1] = hold.count .. ' ' .. hold.share .. ' ' .. hold.token .. ' ' .. int(hold.ends - now)
    reply[#reply + 1] = owner
  end
end
local listed_holders = #words
if not rw then
  local fields, wants = call('HGETALL', state), {}
  for at = 1, #fields, 2 do wants[fields[at]] = fields[at + 1] end
  for _, owner in ipairs(call('ZRANGE', order, '0', '-1')) do
    local _, _, _, share = read_record(wants[owner])
    if share then note_limit(share) end
  end
end
if asked > 0 then
  local line = call('ZRANGE', order, '0', ARGV[2] - 1, 'WITHSCORES')
  for at = 1, #line, 2 do
    local owner, number = line[at], tonumber(line[at + 1])
    local beat = score_of(beats, client_of(owner))
    local _, _, _, share = read_record(call('HGET', state, owner))
    words[#words + 1] = word(beat and math.min(max(0, now - beat), MAX)) .. ' '
      .. (number >= 0 and number <= MAX and int(number) or '-') .. ' ' .. (share or 'w')
    reply[#reply + 1] = owner
  end
end
local stranger = not mine[1] and foreign_ones[1]
local count, left = '-', '-'
if stranger then
  reply[#reply + 1] = rw and field_of(stranger, records[stranger].share) or stranger
  count = word(whole(records[stranger].count) or 1)
  local ttl = call('PTTL', lock)
  left = word(ttl >= 0 and ttl)
end
reply[1] = now_ms .. ' 0 shares ' .. (last_token or '-') .. ' ' .. #mine + #foreign_ones .. ' ' .. int(used) .. ' '
  .. word(least) .. ' ' .. word(most) .. ' ' .. waiting .. ' ' .. listed_holders
  .. ' ' .. count .. ' ' .. left
  .. (#words > 0 and ' ' .. table.concat(words, ' ') or '')
return #reply == 1 and reply[1] or reply
