-- An operator takes a simple lock away from whoever holds it, ours or foreign.
-- KEYS 1..2
-- ARGV  1
-- Reply forced, {former holder} if there was one
-- A number that never ends counts something (a semaphore, a latch), and locks nobody out.
if call('PTTL', lock) == -1 and #value <= 20 and string.find(value, '^%-?%d+$') then
  return redis.error_reply('FAIRLOCK_KIND a number without a TTL (a counter or a semaphore), not a lock')
end
local publish, inbox_prefix = string.match(ARGV[1], '(%u+) %d+ %d+ %d+ (.*)$')
call('DEL', lock)
if by then call(publish, inbox_prefix .. sub(by, 1, 36), 'f1 ' .. by .. ' ' .. by_token) end
call(publish, 'redisson_lock__channel' .. sub(tokens, 20), '0')
if not holder then return now_ms .. ' 0 forced' end
return { now_ms .. ' 0 forced', holder }
