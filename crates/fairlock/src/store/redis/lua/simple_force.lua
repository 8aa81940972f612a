-- An operator takes a simple lock away from whoever holds it, ours or foreign.
-- KEYS 1
-- ARGV as in force.lua
-- Reply {..., 'forced', former holder or nil}
call('DEL', lock)
call(publish, base, '0')
return { now, 0, 'forced', holder() }
