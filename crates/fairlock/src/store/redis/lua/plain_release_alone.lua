-- The common case of plain_release: a hold of the caller's ends whole, and no queue was ever used.
-- KEYS as in plain_release.lua
-- ARGV as in plain_release.lua
-- Reply as in plain_release.lua
if hold[1] == ARGV[2] and last_token == ARGV[3] and not ARGV[4]
  and call('EXISTS', queue, scores, order, state, beats) == 0 then
  call('DEL', lock)
  call(string.match(ARGV[1], '%u+'), 'redisson_lock__channel' .. sub(tokens, 20), '0')
  return now_ms .. ' 0 released'
end

