-- What a client says of itself, and for how long. Stands alone, without the prelude: it is about no lock.
-- A script and no transaction: where EXEC is denied, a connection would stay in the middle of one.
-- KEYS  1 the client's hash
-- ARGV  1 TTL, ms   2 and on: fields and values
-- Reply nothing
local clock = redis.call('TIME')
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIREAT', KEYS[1], clock[1] * 1000 + ARGV[1])
