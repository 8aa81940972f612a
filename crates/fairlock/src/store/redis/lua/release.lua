-- Let go of a fair lock, of everything or down to a count, and hand it on.
-- KEYS 1..7
-- ARGV  2 owner   3 token   4 holds to keep and 5 number of this change, unless all go
-- Reply released | held, count | stale | nothold, {holder} if there is one
local owner, token, keep, change = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- alone: nobody ever waited, or nothing is left of it.
local there = types_known()
local broken, alone = there == nil, not there
local mine = holds(owner, token)
if broken and (keep or not mine) then check_types() end

if not mine then
  local other = hold[1]
  next_holder()
  tidy()
  return naming(now_ms .. ' ' .. more .. ' nothold', other)
end
if keep then
  if stale(token, change) then return now_ms .. ' 0 stale' end
  set_count(owner, token, keep, change)
  return now_ms .. ' 0 held ' .. keep
end
wipe()
freed = true
if not last_token or last_token - token < 0 then
  foreign = not broken and has_foreign()
  write_token(token)
end
if not alone then
  next_holder()
  tidy()
end
return now_ms .. ' ' .. more .. ' released'
