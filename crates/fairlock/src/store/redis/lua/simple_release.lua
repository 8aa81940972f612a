-- Let go of a simple lock, and tell those of ours that wait.
-- KEYS 1 and 4
-- ARGV as in release.lua; 8 owner   9 token   10 holds to keep: above 0 nothing is done
-- Reply {..., 'released'} | {..., 'held', 1} | {..., 'nothold', holder or nil}
if owner ~= ARGV[8] or token ~= ARGV[9] then return { now, 0, 'nothold', holder() } end
if ARGV[10] ~= '0' then return { now, 0, 'held', 1 } end
call('DEL', lock)
if not last_token or last_token < tonumber(token) then write_token(tonumber(token)) end
call(publish, base, '0')
return { now, 0, 'released' }
