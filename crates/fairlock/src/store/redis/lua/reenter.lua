-- The holder enters once more: the hold count becomes absolute, so a copy has no second effect.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 count afterwards   5 number of this change
-- Reply held, count | stale | nothold, {holder} if there is one
local owner, token, count, change = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not holds(owner, token) then return naming(now_ms .. ' 0 nothold', hold[1]) end
if stale(token, change) then return now_ms .. ' 0 stale' end
set_count(owner, token, count, change)
return now_ms .. ' 0 held ' .. count
