-- The common case of a hand-over: the head of the queue is one of ours, alive, with everything on record, and
-- nobody else's entry is in the queue. Whatever is not plainly that case is left to rules.lua.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
if head and #head > 37 and not exhausted then
  local client, known = sub(head, 1, 36), call('HMGET', state, head, 'gather')
  local request, lease, sure = string.match(known[1] or '', '^([0-9a-f]+) ([1-9]%d*) ([01])$')
  local beat = request and #request == 32 and #lease <= 12 and not known[2] and call('ZSCORE', beats, client)
  local age = beat and now - beat
  if age and age >= 0 and age <= D and call('ZRANK', order, head)
    and call('ZCARD', scores) <= call('ZCARD', order)
    and (not presence or sure == '1' or call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] > 0) then
    heir, heir_request, heir_lease, heir_beat = head, request, lease, beat
  end
end

