-- A waiting client lives. Creates no place in the line, whenever it arrives.
-- KEYS 1..7
-- ARGV  2 client   3 and on: waiters that are asked about, the oldest first
-- Reply fates, retry ms or none, foreign 0/1, for each waiter 1: stands in the line, 0: is not known, or request,
--       token and ttl ms of what it has got
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
calling = ARGV[2]
begin()
touch_state()
note_beat(calling)
keep_registry()
mend()
