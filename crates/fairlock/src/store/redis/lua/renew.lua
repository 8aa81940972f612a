-- The hold lives on for ttl ms from now.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 ttl ms
-- Reply renewed | nothold, {holder} if there is one
-- A server that took over without the last writes may know an older hold of this owner: from now on it
-- is this one, and what still ends the older one finds nothing.
if mine then
  foreign = has_foreign()
  write_token(token)
  return now_ms .. ' 0 renewed'
end
check_types()
local other = hold[1]
next_holder()
return naming(now_ms .. ' ' .. more .. ' nothold', other)
