-- Takes a free lock, fair or plain, under the token that was minted and written.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
call('HSET', lock, owner, '1')
call('PEXPIREAT', lock, now_ms + lease)
if shared then
  call('HSET', state, 'grant', minted .. ' ' .. request)
  call('PEXPIREAT', state, now + max(REGISTRY_TTL, lease + D))
end
