-- An operator takes a simple lock away from whoever holds it, ours or foreign.
-- KEYS 1
-- ARGV as in force.lua
-- Reply {..., 'forced', former holder or nil}
-- A number that never ends counts something (a semaphore, a latch), and locks nobody out.
if not free and not ttl and #value <= 20 and string.find(value, '^%-?%d+$') then
  return redis.error_reply('FAIRLOCK_KIND a number without a TTL (a counter or a semaphore), not a lock')
end
call('DEL', lock)
if owner then
  call(publish, ARGV[3] .. string.sub(owner, 1, 36), 'f1 ' .. owner .. ' ' .. token)
end
call(publish, base, '0')
return { now, 0, 'forced', holder() }
