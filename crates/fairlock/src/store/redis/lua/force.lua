-- An operator takes the lock away from whoever holds it; works for every kind of lock.
-- KEYS 1..7
-- ARGV  1..7
-- Reply {..., 'forced', former holder or nil}
check_types()
local former = not free and holder()
wipe()
freed = true
call(publish, base, '0')
next_holder()
tidy()
return { now, more, 'forced', former }
