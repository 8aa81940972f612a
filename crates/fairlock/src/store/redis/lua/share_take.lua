-- Takes a share, beside a last lease that ends at last_end, if there is one.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
if minting then token = minted end
local ends, record = now + lease, request .. ' ' .. token .. ' 0 1 ' .. share
-- A server makes a text of a number with each use, for as much as a small command.
local till, kept = ends .. '', kept_until(ends)
if share == 'w' then
  call('HSET', lock, 'mode', 'write', owner .. ':write', '1')
  call('HSET', holds, owner, record)
elseif share == 'r' then
  if minting then
    call('HSET', lock, 'mode', 'read', owner, '1')
    call('HSET', holds, owner, record, 'phase', token)
  else
    call('HSET', lock, owner, '1')
    call('HSET', holds, owner, record)
  end
  call('SET', timeout, '1', 'PXAT', till) -- by which Java takes a reader for alive
else
  call('HSET', lock, 'mode', 'permits', owner, n)
  call('HSET', holds, owner, record, 'used', used + n, 'limit:' .. limit, named + 1)
end
call('ZADD', leases, till, owner)
if not last_end then
  kept = kept .. ''
  call('PEXPIREAT', lock, till)
  call('PEXPIREAT', leases, kept)
  call('PEXPIREAT', holds, kept)
else
  if ends > last_end then call('PEXPIREAT', lock, till) end
  if ends > last_end and kept ~= kept_until(last_end) then
    kept = kept .. ''
    call('PEXPIREAT', leases, kept)
    call('PEXPIREAT', holds, kept)
  end
end
do return now_ms .. ' ' .. more .. ' granted ' .. token .. ' ' .. lease end
