-- Writes fields of many holders to a hash, how many of which are new.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local function set_many(key, fields_of, number)
  if number < WIDE then return call('HSET', key, unpack(fields_of)) end
  return call('HSET', key, FILLER, '', unpack(fields_of)) - call('HDEL', key, FILLER)
end

-- The same of leases: until when each of them holds.
local function add_many(ends_of, number)
  if number < WIDE then return call('ZADD', leases, unpack(ends_of)) end
  return call('ZADD', leases, '0', FILLER, unpack(ends_of)) - call('ZREM', leases, FILLER)
end

