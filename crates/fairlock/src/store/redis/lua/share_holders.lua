-- Who holds a share of the lock.
-- KEYS as in share_facts.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- By client, then by number, as in fairlock-core.
local function is_before(one, other)
  local a, b = client_of(one), client_of(other)
  if a ~= b then return a < b end
  if #one ~= #other then return #one < #other end
  return one < other
end

-- Ours whose leases run, in order, with their records; and the fields of others.
local function holders()
  local mine, foreign_ones, records = {}, {}, {}
  if not mode then return mine, foreign_ones, records end
  local known = call('HGETALL', lock)
  for at = 1, #known, 2 do
    local owner, share = known[at], 'r'
    if rw and sub(owner, -6) == ':write' then owner, share = sub(owner, 1, -7), 'w' end
    local ends = owner ~= 'mode' and ours(owner) and score_of(leases, owner)
    local hold = ends and read_hold(call('HGET', holds, owner))
    if hold and ends >= now then
      hold.ends = ends
      mine[#mine + 1], records[owner] = owner, hold
    elseif owner ~= 'mode' and not ends then
      foreign_ones[#foreign_ones + 1] = owner
      records[owner] = { count = known[at + 1], share = share }
    end
  end
  table.sort(mine, is_before)
  table.sort(foreign_ones)
  return mine, foreign_ones, records
end

