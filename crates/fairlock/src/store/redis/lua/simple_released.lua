-- The end of a release.
-- KEYS as in simple_release.lua
-- ARGV as in simple_release.lua
-- Reply as in simple_release.lua
if mine then
  call(string.match(ARGV[1], '%u+'), 'redisson_lock__channel' .. sub(tokens, 20), '0')
  return now_ms .. ' 0 released'
end

