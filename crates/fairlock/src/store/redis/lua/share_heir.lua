-- The common case of a hand-over: all of the lock, or permits under the same limit, go to the head of the line, which
-- is alive; and whoever is behind it gets nothing. Whatever is not plainly that case is left to share_serve.lua.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
if waits > 0 and (sole or beside and n) and not exhausted then
  -- A line of a wrong type has nobody; share_ends.lua finds it.
  local line = redis.pcall('ZRANGE', order, '0', '2')
  local head, next_one = line[1], line[2]
  -- Java's waiters may come first.
  if head and sole and rw and now_us - last_token >= 0 and sub(last_token, 1, -7) ~= clock[1] and (redis.pcall('PUBSUB',
    publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', 'redisson_rwlock:' .. tagged)[2] or 0) > 0 then
    head = nil
  end
  local known = head and call('HMGET', state, head, 'gather', next_one or '') or {}
  local request, lease, sure, wish = string.match(known[1] or '', '^(%x+) ([1-9]%d*) ([01]) (%S+)$')
  local client = head and sub(head, 1, 36)
  local beat = request and #request == 32 and #lease <= 12 and not known[2] and call('ZSCORE', beats, client)
  reads = sole and share == 'w' and wish == 'r'
  local age, fits, heir_n, heir_limit = beat and now - beat, wish == 'w', nil, nil
  if fits and next_one then fits = string.find(known[3] or '', '^%x+ [1-9]%d* [01] [rw]$') ~= nil end
  if age and n then
    -- Under the caller's limit, so that it names it in its place.
    heir_n, heir_limit = string.match(wish, '^([1-9]%d*)/([1-9]%d*)$')
    local in_use = sole and 0 or used
    fits = heir_limit == limit and in_use + heir_n - limit <= 0
    if fits and next_one then
      local next_sure, next_n, next_limit = string.match(known[3] or '', '^%x+ [1-9]%d* ([01]) ([1-9]%d*)/([1-9]%d*)$')
      fits = next_n and #next_n <= 10 and #next_limit <= 10 and in_use + heir_n + next_n - next_limit > 0
        -- Where others stand behind it, it is asked for.
        and (not line[3] or presence and next_sure ~= '1'
          and call('PUBSUB', 'NUMSUB', inbox_prefix .. sub(next_one, 1, 36))[2] > 0)
    end
  end
  if fits and age and age >= 0 and age <= D
    and (not presence or sure == '1' or call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] > 0) then
    heir, heir_beat, heir_request, heir_lease, heir_share = head, beat, request, lease, wish
    if n then used = sole and heir_n or used + heir_n end
    -- Works without free memory, and so does everything after it.
    if sole and share == 'r' then
      call('DEL', lock, leases, holds, tagged .. ':' .. owner .. ':rwlock_timeout:1')
    elseif sole then
      call('DEL', lock, leases, holds)
    else
      call('ZREM', leases, owner)
      call('HDEL', holds, owner)
      call('HDEL', lock, owner)
    end
  end
end
