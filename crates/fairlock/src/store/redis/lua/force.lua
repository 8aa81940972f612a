-- An operator takes the lock away from whoever holds it; works for every kind of lock.
-- KEYS 1..7
-- ARGV  1
-- Reply forced, {former holder} if there was one
local known = types_known() ~= nil
local former = hold[1]
wipe()
if former and ours(former) and last_token and last_token - 0 > 0 then
  call(publish, inbox_prefix .. client_of(former), 'f1 ' .. former .. ' ' .. int(last_token))
end
freed = true
call(publish, 'redisson_lock__channel' .. sub(tokens, 20), '0')
if known then
  next_holder()
  tidy()
end
return naming(now_ms .. ' ' .. more .. ' forced', former)
