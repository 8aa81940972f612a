-- Let go of a plain lock, of everything or down to a count, and tell the waiters.
-- KEYS 1..7
-- ARGV as in release.lua
-- Reply as in release.lua
local owner, token = ARGV[8], tonumber(ARGV[9])
local keep, change = tonumber(ARGV[10]), tonumber(ARGV[11])
local alone = not check_types()
if not holds(owner, token) then
  local other = not free and holder()
  if not alone then tidy() end
  return { now, 0, 'nothold', other }
end
if keep > 0 then
  if stale(token, change) then return { now, 0, 'stale' } end
  set_count(owner, token, keep, change)
  return { now, 0, 'held', keep }
end
wipe()
call(publish, base, '0')
if not last_token or last_token < token then write_token(token, false) end
if not alone then tidy() end
return { now, 0, 'released' }
