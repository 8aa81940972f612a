-- Everybody who holds a share of the lock.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- By client, then by number, as in fairlock-core.
local function is_before(one, other)
  local a, b = sub(one, 1, 36), sub(other, 1, 36)
  if a ~= b then return a < b end
  if #one ~= #other then return #one < #other end
  return one < other
end

-- Ours whose leases run, in order, with their tokens; and the other fields: Java's, and of ours that lost their records.
local function holders()
  local mine_all, foreign_ones, tokens_of = {}, {}, {}
  local all = mode and call('HGETALL', lock) or {}
  for at = 1, #all, 2 do
    local one = all[at]
    if rw and sub(one, -6) == ':write' then one = sub(one, 1, -7) end
    local till = one ~= 'mode' and ours(one) and tonumber(call('ZSCORE', leases, one) or nil)
    local hold = till and till >= now and read_hold(call('HGET', holds, one))
    if hold then
      mine_all[#mine_all + 1], tokens_of[one] = one, hold.token
    elseif one ~= 'mode' and not (till and till < now) then
      foreign_ones[#foreign_ones + 1] = one
    end
  end
  table.sort(mine_all, is_before)
  table.sort(foreign_ones)
  return mine_all, foreign_ones, tokens_of
end

