-- The common case of release: a hold of the caller's ends whole, and nobody waits.
-- KEYS as in release.lua
-- ARGV as in release.lua
-- Reply as in release.lua
local mine = hold[1] == ARGV[2] and last_token == ARGV[3] and not ARGV[4]
-- A queue of a wrong type is left to release.lua; it has no length here.
local head = mine and redis.pcall('LINDEX', queue, '0')
if mine and not head and call('EXISTS', scores, order, state, beats) == 0 then
  call('DEL', lock)
  return now_ms .. ' 0 released'
end

