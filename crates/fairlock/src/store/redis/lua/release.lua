-- Let go of a fair lock, of everything or down to a count, and hand it on.
-- KEYS 1..7
-- ARGV  8 owner   9 token   10 holds to keep, 0 = none   11 number of this change
-- Reply {..., 'released'} | {..., 'held', count} | {..., 'stale'} | {..., 'nothold', holder or nil}
local owner, token = ARGV[8], tonumber(ARGV[9])
local keep, change = tonumber(ARGV[10]), tonumber(ARGV[11])

-- Nobody ever waited, or nothing is left of it: the common case.
local alone = not check_types()

if not holds(owner, token) then
  local other = not free and holder()
  next_holder()
  tidy()
  return { now, more, 'nothold', other }
end
if keep > 0 then
  if stale(token, change) then return { now, 0, 'stale' } end
  set_count(owner, token, keep, change)
  return { now, 0, 'held', keep }
end
wipe()
freed = true
if not last_token or last_token < token then write_token(token, has_foreign()) end
if not alone then
  next_holder()
  tidy()
end
return { now, more, 'released' }
