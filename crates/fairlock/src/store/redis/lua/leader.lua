-- Who holds the lock, and what it has announced; changes nothing.
-- KEYS 1..7   8 announcement hash, as in announce.lua
-- ARGV  1
-- Reply leader, ttl ms or none, token or none, number of the announcement and since when (epoch ms), or twice none,
--       {the holder, and the value if it has announced one}
local VALUE_MAX = 1024              -- bytes; a longer value is no announcement of ours
local known = call('HMGET', KEYS[8], 'owner', 'token', 'change', 'since', 'value')
if free then return now_ms .. ' 0 leader - - - -' end
local text = now_ms .. ' 0 leader ' .. word(hold_ttl()) .. ' '
-- As `holds` in change.lua.
if hold[1] == known[1] and whole(known[2]) and (not last_token or last_token - known[2] <= 0)
  and whole(known[3]) and whole(known[4]) and known[5] and #known[5] <= VALUE_MAX then
  return { text .. known[2] .. ' ' .. known[3] .. ' ' .. known[4], cut(hold[1]), known[5] }
end
return { text .. (last_token or '-') .. ' - -', cut(hold[1]) }
