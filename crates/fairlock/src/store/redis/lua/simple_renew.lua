-- The simple hold lives on for ttl ms from now.
-- KEYS 1
-- ARGV  8 owner   9 token   10 ttl ms
-- Reply {..., 'renewed'} | {..., 'nothold', holder or nil}
if owner ~= ARGV[8] or token ~= ARGV[9] then return { now, 0, 'nothold', holder() } end
call('PEXPIREAT', lock, now + tonumber(ARGV[10]))
return { now, 0, 'renewed' }
