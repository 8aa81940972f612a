-- What every operation ends with: the lives of the keys, then messages.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- The lock ends with the last of our leases. It is never shortened beside fields without one: Java's, or of ours whose
-- leases were lost. To end it now would be to delete it, and somebody holds it until the end of this very millisecond.
if changed and leased > 0 and mode then
  local till = max(last_end, now + 1)
  if not (fields - 1 > leased and call('PTTL', lock) >= till - now) then call('PEXPIREAT', lock, till) end
  if kept_until(last_end) ~= kept then
    call('PEXPIREAT', leases, kept_until(last_end))
    call('PEXPIREAT', holds, kept_until(last_end))
  end
end
-- Java's readers are left alone with the life that ours had given the lock.
if ended and leased == 0 and mode == 'read' then keep_for_readers_of_java() end
for _, message in ipairs(taken) do call(publish, message[1], message[2]) end
for _, client in ipairs(told) do
  local grants = grants_of[client]
  local one = not grants[2] and grants.first
  local text = one and 'g1 ' .. one[1] .. ' ' .. one[2] .. ' ' .. now_ms .. ' ' .. one[3]
    or 'g2 ' .. now_ms .. ' ' .. table.concat(grants, ' ')
  call(publish, inbox_prefix .. client, text)
end
-- Java's waiters stand in no line; they are told when something ends that may let them in: all of them, or by the
-- last reader one. Without the right to the channel they look when the lock ends; what was done is done.
if invited or rw and former_mode and former_mode ~= mode then
  local message = (invited or former_mode == 'write') and '1' or not mode and '0'
  if message then redis.pcall(publish, 'redisson_rwlock:' .. tagged, message) end
end
return reply
