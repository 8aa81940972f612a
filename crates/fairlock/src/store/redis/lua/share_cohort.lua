-- The common case of a hand-over to readers: a writer leaves, and all who read next are alive, up to a writer that is
-- alive as well or the end of the line. Whatever is not plainly that case is left to share_serve.lua.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
-- A function of its own, because the server pays in each call for what the outermost level may need at once.
local GRANTS_MAX = 128              -- grants of one call
-- granted: how many of the line get a share. group_at: of each of them, the group of its client.
local requests, group_at, groups, granted = {}, {}, {}, 0
local line = call('ZRANGE', order, '0', GRANTS_MAX)
local known, clients, channels, group_of = call('HMGET', state, 'gather', unpack(line)), {}, {}, {}
-- Most of a line have the same record behind the request.
local rest, lease, sure, wish = nil, nil, nil, nil
for at = 1, #line do
  local text, client = known[at + 1] or '', sub(line[at], 1, 36)
  local request, behind, group = sub(text, 1, 32), sub(text, 33), group_of[client]
  if behind ~= rest then
    rest, lease, sure, wish = behind, string.match(behind, '^ ([1-9]%d*) ([01]) ([rw])$')
  end
  if not group then
    group = { lease = lease, sure = sure }
    groups[#groups + 1], clients[#clients + 1], group_of[client] = group, client, group
    if sure ~= '1' then channels[#channels + 1] = inbox_prefix .. client end
  end
  if not lease or #lease > 12 or not tonumber(request, 16) or at > GRANTS_MAX
    or wish == 'r' and (lease ~= group.lease or sure ~= group.sure) then
    granted = 0
    break
  end
  if wish == 'w' then break end
  granted, requests[at], group_at[at], group[#group + 1] = at, request, group, request
end
local beats_of = granted > 0 and not known[1] and call('ZMSCORE', beats, unpack(clients)) or {}
local hear = beats_of[1] and presence and channels[1] and call('PUBSUB', 'NUMSUB', unpack(channels)) or {}
for at = 2, #hear, 2 do
  if hear[at] == 0 then granted = 0 end
end
for at, group in ipairs(groups) do
  -- For as long as its client's last beat vouches for it.
  local vouched = beats_of[at] and beats_of[at] + D - now or -1
  if vouched < 0 or vouched > D then granted = 0 end
  group.client, group.ttl = clients[at], max(vouched, HB)
  if group.lease and group.lease - group.ttl <= 0 then group.ttl = group.lease + 0 end
end
if granted == 0 then return false end
-- Works without free memory, and so does everything after it.
call('DEL', lock, leases, holds)
