-- Takes several locks of one slot, or none of them, and never waits: free is what the common cases of acquire and
-- share_acquire say. Everything else is left to those, one lock after the other.
-- KEYS 8 of each lock, as in acquire.lua or in share_acquire.lua
-- ARGV 1 as in head.lua; then 6 of each lock: 2 to 6 as in acquire.lua, and the share, or `-` for a fair lock
-- Reply an array of what acquire.lua replies to each, all `granted`; or the number of the first that is not free
local takes = {}
for i = 1, #KEYS / 8 do
  local keys, args = {}, { ARGV[1] }
  for k = 1, 8 do keys[k] = KEYS[8 * i - 8 + k] end
  for a = 1, 6 do args[1 + a] = ARGV[6 * i - 5 + a] end
  local take = (args[7] == '-' and fair or shared)(keys, args)
  if type(take) ~= 'function' then return i end
  takes[i] = take
end
local replies = {}
for i = 1, #takes do replies[i] = takes[i]() end
return replies
