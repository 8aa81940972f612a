-- The common case of plain_release: no queue was ever used. Same result as plain_release's.
-- KEYS as in plain_release.lua
-- ARGV as in plain_release.lua
-- Reply as in plain_release.lua
if hold[1] == ARGV[8] and ARGV[10] == '0' and last_token == tonumber(ARGV[9])
  and call('EXISTS', queue, scores, order, state, beats) == 0 then
  call('DEL', lock)
  call(publish, base, '0')
  return { now, 0, 'released' }
end

