-- A write that every replica hears of, and that leaves nothing: what WAIT on this connection then
-- waits for. Stands alone, without the prelude. First a command that needs no memory.
-- KEYS  1 a key of the lock's own slot
-- ARGV  none
-- Reply 1
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '1', 'PX', 1000)
return redis.call('DEL', KEYS[1])
