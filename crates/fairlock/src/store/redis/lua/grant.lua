-- Makes the heir the holder, under the token that was minted, and tells its client unless this is its own
-- call. The TTL of the series stays as it is, or ends where others than ours wait.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local ttl = heir_lease
if caller ~= heir then
  ttl = heir_beat + D - now
  if ttl < HB then ttl = HB end
  if heir_lease - ttl <= 0 then ttl = heir_lease end
end
if not wiped then call('DEL', lock) end
if foreign or fleet then
  call('SET', tokens, minted)
elseif last_token then
  call('SET', tokens, minted, 'KEEPTTL')
else
  call('SET', tokens, minted, 'PX', TOKEN_TTL)
end
last_token, lead = minted, 0
call('HSET', lock, heir, '1')
call('PEXPIREAT', lock, now + ttl)
if at_head then
  call('LPOP', queue)
else
  call('LREM', queue, '0', heir)
end
call('ZREM', scores, heir)
-- Before the record goes: a hash without fields is gone, and its TTL with it.
call('HSET', state, 'grant', minted .. ' ' .. heir_request)
call('ZREM', order, heir)
call('HDEL', state, heir)
-- The client's last beat has kept the state long enough for a short hold.
if caller == heir or now - heir_beat + ttl + D > REGISTRY_TTL then
  call('PEXPIREAT', state, now + max(REGISTRY_TTL, ttl + D))
end
if caller ~= heir then
  call(publish, inbox_prefix .. sub(heir, 1, 36), 'g1 ' .. heir_request .. ' ' .. minted .. ' ' .. now_ms .. ' ' .. ttl)
end
