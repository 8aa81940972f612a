-- What the scripts of fair and plain locks know beside head.lua: the hash that is the lock, and the queue.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local queue, scores, order, state, beats = KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7]
local inbox_prefix = ARGV[3]
local HB, D, FAIR_WAIT = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local presence = string.find(ARGV[7], 'p', 1, true) ~= nil
local REGISTRY_TTL = 60000          -- ms, our own keys while somebody waits; twice D if that is more
if REGISTRY_TTL < 2 * D then REGISTRY_TTL = 2 * D end
local QUEUE_TTL = 86400000          -- ms, shared queue keys while only ours use them
local hold = call('HGETALL', lock)  -- owner, count
local free = #hold == 0

-- What surely is no lock is refused here, by every operation, before anything is written: nothing that
-- is not ours is given a TTL or deleted. Any other single field with a count is a hold, ours or foreign.
-- Of a hold of ours this is a look at three values.
if not free and (hold[2] ~= '1' or hold[3] or hold[1] == 'mode') then
  local found, count = false, hold[2]
  for i = 1, #hold, 2 do
    if hold[i] == 'mode' then found = 'a hash with a field `mode` (a read-write lock of Redisson has one)' end
  end
  if not found and hold[3] then
    found = fmt('a hash with %.0f fields', #hold / 2)
  elseif not found and (#count > 10 or not string.find(count, '^[1-9]%d*$') or tonumber(count) > 2147483647) then
    found = 'a hash whose one value is no hold count'
  end
  if found then return redis.error_reply('FAIRLOCK_KIND ' .. found .. ', not a lock') end
end

-- Ours: a version-8 UUID, a colon, 1 to 15 digits. Anything else is foreign and opaque.
local function ours(id)
  return #id <= 52
    and string.find(id, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:[1-9]%d*$') ~= nil
    and string.lower(id) == id
end

