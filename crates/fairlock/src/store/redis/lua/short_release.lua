-- The common cases of release: nobody waits, or the head of the queue is one of ours, alive, with
-- everything on record. Same result as release's; whatever is not plainly one of them is left to it.
-- KEYS as in release.lua
-- ARGV as in release.lua
-- Reply as in release.lua
if hold[1] == ARGV[8] and ARGV[10] == '0' and last_token == tonumber(ARGV[9]) then
  local head = call('LINDEX', queue, 0)
  if not head then
    if call('EXISTS', scores, order, state, beats) == 0 then
      call('DEL', lock)
      return { now, 0, 'released' }
    end
  elseif #head > 37 then
    local client = string.sub(head, 1, 36)
    local known = call('HMGET', state, head, 'gather')
    local request, lease, sure =
      string.match(known[1] or '', '^([0-9a-f]+) ([1-9]%d*) ([01])$')
    local beat = tonumber(call('ZSCORE', beats, client) or nil)
    local only_ours = call('ZCARD', scores) <= call('ZCARD', order)
    if only_ours and not exhausted and call('ZSCORE', order, head) and request and #request == 32
      and #lease <= 12 and not known[2] and beat and beat <= now and now - beat <= D
      and (not presence or sure == '1'
        or call('PUBSUB', 'NUMSUB', inbox_prefix .. client)[2] > 0) then
      local ttl = math.min(max(beat + D - now, HB), tonumber(lease))
      local token = fmt('%.0f', max(last_token + 1, now_us))
      call('DEL', lock)
      if fleet then call('SET', tokens, token) else call('SET', tokens, token, 'KEEPTTL') end
      call('HSET', lock, head, 1)
      call('PEXPIREAT', lock, now + ttl)
      call('LPOP', queue)
      call('ZREM', scores, head)
      call('HSET', state, 'grant', token .. ' ' .. request)
      call('ZREM', order, head)
      call('HDEL', state, head)
      if now - beat + ttl + D > REGISTRY_TTL then
        call('PEXPIREAT', state, now + max(REGISTRY_TTL, ttl + D))
      end
      call(publish, inbox_prefix .. client,
        fmt('g1 %s %s %.0f %.0f', request, token, now, ttl))
      return { now, 0, 'released' }
    end
  end
end

