-- The holder enters once more: the hold count becomes absolute, so a copy has no second effect.
-- KEYS 1..7
-- ARGV  8 owner   9 token   10 count afterwards   11 number of this change
-- Reply {..., 'held', count} | {..., 'stale'} | {..., 'nothold', holder or nil}
local token, count, change = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
if not holds(ARGV[8], token) then return { now, 0, 'nothold', not free and holder() } end
if stale(token, change) then return { now, 0, 'stale' } end
set_count(ARGV[8], token, count, change)
return { now, 0, 'held', count }
