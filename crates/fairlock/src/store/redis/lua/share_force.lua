-- An operator takes every share away from whoever holds one.
-- KEYS 1..7
-- ARGV  1
-- Reply ended, how many others held a share, {first of the former holders} if there was one
begin()
local mine, foreign_ones, records = holders()
for _, owner in ipairs(mine) do
  taken[#taken + 1] = { inbox_prefix .. client_of(owner), 'f1 ' .. owner .. ' ' .. records[owner].token }
  end_share(owner)
end
if #foreign_ones > 0 then
  call('DEL', lock)
  mode = false
end
pass_shares_on()
local text = now_ms .. ' ' .. more .. ' ended ' .. max(0, #mine + #foreign_ones - 1)
return naming(finish(text), mine[1] or foreign_ones[1])
