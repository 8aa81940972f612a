-- Where a waiter stands, change nothing. LPOS walks the list: about 11 ns a member (Redis 7.0).
-- KEYS 1..7
-- ARGV  2 the waiter
-- Reply place, how many stand before it, or none: not in the queue
return now_ms .. ' 0 place ' .. (call('LPOS', queue, ARGV[2]) or '-')
