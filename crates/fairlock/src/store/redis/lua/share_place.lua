-- Where a waiter stands, change nothing.
-- KEYS 1..7
-- ARGV  2 the waiter
-- Reply place, how many stand before it, or none: not in the line
return now_ms .. ' 0 place ' .. (call('ZRANK', order, ARGV[2]) or '-')
