-- Let go of a share, of everything or down to a count, and serve the line.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 request, 32 hex   5 holds to keep and 6 number of this change, unless all go
-- Reply released | held, count | stale | nothold, {holder} if one has all of it
local owner, keep, change = ARGV[2], ARGV[5], ARGV[6]
local sure = broken and held_share()
if broken and (keep or not sure or sure.token ~= ARGV[3] or sure.request ~= ARGV[4]) then
  return redis.error_reply(broken)
end
serving = not broken
begin()
local hold, holder, body = hold_of(owner, ARGV[3], ARGV[4]), nil, 'released'
if not hold then
  holder, body = whole_holder(), 'nothold'
elseif not keep then
  end_shares({ owner }, true)
else
  body = set_count(owner, hold, keep, change)
end
