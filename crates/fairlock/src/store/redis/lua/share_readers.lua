-- All who read next get their shares, under the token that was minted.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local tail, before, behind, last_end = ' ' .. minted .. ' 0 1 r', tagged .. ':', ':rwlock_timeout:1', 0
for _, group in ipairs(groups) do
  local till = now + group.ttl
  group.till, group.tail = till .. '', ' ' .. minted .. ' ' .. group.ttl
  if group[1] then last_end = max(last_end, till) end
end
local lock_fields, records, ends_of = { 'mode', 'read' }, {}, {}
for at = 1, granted do
  local odd, owner = 2 * at - 1, line[at]
  lock_fields[odd + 2], lock_fields[odd + 3] = owner, '1'
  records[odd], records[odd + 1] = owner, requests[at] .. tail
  ends_of[odd], ends_of[odd + 1] = group_at[at].till, owner
end
records[2 * granted + 1], records[2 * granted + 2] = 'phase', minted
set_many(lock, lock_fields, granted)
set_many(holds, records, granted)
add_many(ends_of, granted)
-- By which Java takes each of them for alive.
for at = 1, granted do call('SET', before .. line[at] .. behind, '1', 'PXAT', group_at[at].till) end
keep_leases(last_end)
-- Last: where a slot moves, a script is stopped at a key that it has just removed, and who waits must keep its place then.
call('ZREM', order, unpack(line, 1, granted))
call('HDEL', state, unpack(line, 1, granted))
for _, group in ipairs(groups) do
  if group[2] then
    call(publish, inbox_prefix .. group.client,
      'g2 ' .. now_ms .. ' ' .. table.concat(group, group.tail .. ' ') .. group.tail)
  elseif group[1] then
    call(publish, inbox_prefix .. group.client,
      'g1 ' .. group[1] .. ' ' .. minted .. ' ' .. now_ms .. ' ' .. group.ttl)
  end
end
-- Java's waiters; without the right to their channel they look when the lock ends.
redis.pcall(publish, 'redisson_rwlock:' .. tagged, '1')
return true
