-- All stored data: the seven keys of a lock, its announcement, the burials named by KEYS[9] and on, and the
-- names of all keys. Reading every key also makes the server drop expired ones, as the core does, so that a
-- clock that is set back revives nothing.
local readers = {
  { 'HGETALL' }, { 'LRANGE', 0, -1 }, { 'ZRANGE', 0, -1, 'WITHSCORES' }, { 'GET' },
  { 'ZRANGE', 0, -1, 'WITHSCORES' }, { 'HGETALL' }, { 'ZRANGE', 0, -1, 'WITHSCORES' },
  { 'HGETALL' },
}
local found = {}
for i, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  local content = false
  local reader = readers[i]
  -- A simple lock is a string.
  if i == 1 and redis.call('TYPE', key).ok == 'string' then reader = { 'GET' } end
  if reader then content = redis.call(reader[1], key, unpack(reader, 2)) end
  found[i] = { left, content }
end
return { found, redis.call('KEYS', '*') }
