-- An operator takes every share away from whoever holds one.
-- KEYS 1..7
-- ARGV  1
-- Reply ended, how many others held a share, {first of the former holders} if there was one
if rw then call('EXISTS', timeout_of('')) end -- a right that is missing is found before anything is written
serving = not broken
begin()
local mine_all, foreign_ones, tokens_of = holders()
for _, one in ipairs(mine_all) do
  taken[#taken + 1] = { inbox_prefix .. sub(one, 1, 36), 'f1 ' .. one .. ' ' .. tokens_of[one] }
end
for at = 1, #mine_all, 1000 do end_shares({ unpack(mine_all, at, math.min(at + 999, #mine_all)) }) end
if foreign_ones[1] then
  call('DEL', lock)
  forget_holds()
  mode, fields, used = false, 0, 0
end
local holder = mine_all[1] or foreign_ones[1]
local body = 'ended'
words = ' ' .. max(0, #mine_all + #foreign_ones - 1)
