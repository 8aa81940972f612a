-- The holder lets everybody know a value. Counts only as long as this hold lasts: leader.lua compares.
-- KEYS 1..7   8 announcement hash: owner, token, change, since (epoch ms), value; also the channel of that name
-- ARGV  2 owner   3 token   4 number of this change   5 TTL, ms   6 value
-- Reply announced | stale | nothold, {holder} if there is one
local leader, owner, token, change = KEYS[8], ARGV[2], ARGV[3], ARGV[4]
local known = call('HMGET', leader, 'owner', 'token', 'change', 'since')
if not holds(owner, token) then return naming(now_ms .. ' 0 nothold', hold[1]) end
-- Of an earlier hold, also of this owner, nothing counts.
local last = known[1] == owner and known[2] == token and whole(known[3])
if last and last - change > 0 then return now_ms .. ' 0 stale' end
local since = last and whole(known[4]) and known[4] or now_ms
-- A first write that works without free memory: one that waited is granted the lock without any, and leads.
call('HDEL', leader, '')
call('HSET', leader, 'owner', owner, 'token', token, 'change', change, 'since', since, 'value', ARGV[6])
call('PEXPIREAT', leader, now + ARGV[5])
-- A copy, or one that only keeps the announcement, is no news.
if not last or last - change < 0 then
  call(publish, leader, string.format('l1 %s %s %s', token, now_ms, owner))
end
return now_ms .. ' 0 announced'
