-- The holder of a share enters once more. The count is absolute, so copies do no harm.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 request, 32 hex   5 count afterwards   6 number of this change   7 not after, epoch ms
-- Reply held, count | stale | nothold, {holder} if one has all of it
begin()
local hold, holder, body = hold_of(ARGV[2], ARGV[3], ARGV[4], ARGV[7]), nil, 'nothold'
if hold then
  body = set_count(ARGV[2], hold, ARGV[5], ARGV[6])
else
  holder = whole_holder()
end
