-- The caller's hold goes to the heir, under the token that was minted.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local ttl = max(heir_beat + D - now, HB)
if heir_lease - ttl <= 0 then ttl = heir_lease + 0 end
local till = now + ttl
local till_text, record = till .. '', heir_request .. ' ' .. minted .. ' 0 1 ' .. heir_share
if rw then
  call('HSET', lock, 'mode', 'write', heir .. ':write', '1')
  call('HSET', holds, heir, record)
else
  call('HSET', lock, 'mode', 'permits', heir, string.match(heir_share, '%d+'))
  if sole then
    call('HSET', holds, heir, record, 'used', used, 'limit:' .. limit, '1')
  else
    call('HSET', holds, heir, record, 'used', used)
  end
end
call('ZADD', leases, till_text, heir)
keep_leases(sole and till or max(till, beside_end))
-- Not before it has the lock: where a slot moves, a script is stopped at a key that it has just removed, and who waits
-- must keep its place then.
call('ZREM', order, heir)
call('HDEL', state, heir)
call(publish, inbox_prefix .. sub(heir, 1, 36), 'g1 ' .. heir_request .. ' ' .. minted .. ' ' .. now_ms .. ' ' .. ttl)
