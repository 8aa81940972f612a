-- An operator takes the lock away from whoever holds it; works for every kind of lock.
-- KEYS 1..7
-- ARGV  1..7
-- Reply {..., 'forced', former holder or nil}
check_types()
local former = not free and holder()
wipe()
if former and ours(former) and last_token and last_token > 0 then
  call(publish, inbox_prefix .. client_of(former), 'f1 ' .. former .. ' ' .. int(last_token))
end
freed = true
call(publish, base, '0')
next_holder()
tidy()
return { now, more, 'forced', former }
