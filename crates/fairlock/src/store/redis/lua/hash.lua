-- What the scripts of fair and plain locks know beside head.lua: the hash that is the lock, and the queue.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local queue, scores, order, state, beats = KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7]
local hold = call('HGETALL', lock)  -- owner, count
local free = not hold[1]

-- What surely is no lock is refused here, by every operation, before anything is written: nothing that
-- is not ours is given a TTL or deleted. Any other single field with a count is a hold, ours or foreign.
-- Of a hold of ours this is a look at three values.
if not free and (hold[2] ~= '1' or hold[3] or hold[1] == 'mode') then
  local found, count = false, hold[2]
  for i = 1, #hold, 2 do
    if hold[i] == 'mode' then found = 'a hash with a field `mode` (a read-write lock of Redisson has one)' end
  end
  if not found and hold[3] then
    found = string.format('a hash with %.0f fields', #hold / 2)
  elseif not found and (#count > 10 or not string.find(count, '^[1-9]%d*$') or tonumber(count) > 2147483647) then
    found = 'a hash whose one value is no hold count'
  end
  if found then return redis.error_reply('FAIRLOCK_KIND ' .. found .. ', not a lock') end
end

