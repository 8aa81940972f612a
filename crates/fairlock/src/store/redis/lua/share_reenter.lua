-- The holder of a share enters once more. The count is absolute, so copies do no harm.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 count afterwards   5 number of this change
-- Reply held, count | stale | nothold, {holder} if one has all of it
begin()
local hold, holder, body = hold_of(ARGV[2], ARGV[3]), nil, 'nothold'
if hold then
  body = set_count(ARGV[2], hold, ARGV[4], ARGV[5])
else
  holder = whole_holder()
end
