-- What a client said of itself. Stands alone, without the prelude: it is about no lock.
-- KEYS  1 the client's hash
-- ARGV  1 longest value, bytes   2 and on: fields
-- Reply {value or nil for each field}, or nil: no hash, or a value longer than a client writes
local found = redis.pcall('HMGET', KEYS[1], unpack(ARGV, 2))
if found.err then return false end
for i = 1, #ARGV - 1 do
  if found[i] and #found[i] > tonumber(ARGV[1]) then return false end
end
return found
