-- The common case of an entry into the line: it changes nothing for those who hold or wait. Whatever is not plainly
-- that case is left to share_acquire.lua.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
local ends = there > 0 and sub(how, 1, 1) == 'W' and call('ZRANGE', leases, '0', '0', 'WITHSCORES')
if ends and ends[2] and ends[2] - now >= 0 and string.find(ends[2], '^%d+$') and #ends[2] <= 13
  and call('EXISTS', KEYS[8], KEYS[9], KEYS[10]) == 0 then
  local client, head = sub(owner, 1, 36), call('ZRANGE', order, '0', '0')[1]
  local known = call('HMGET', lock, 'mode', owner, owner .. ':write', rw and ends[1] .. ':write' or ends[1])
  local counts = call('HMGET', holds, owner, 'used', 'limit:' .. (limit or ''))
  local notes = call('HMGET', state, owner, 'given', 'gather', head or '')
  local length, closed = head and call('ZCARD', order) + 1 or 1, false
  local wants, first_lease, sure, wish = string.match(notes[4] or '', '^(%x+) ([1-9]%d*) ([01]) (%S+)$')
  if notes[1] or notes[3] or counts[1] or known[2] or known[3] or not known[4] or length == 1 and wants
    or length > 1 and (not wants or #wants ~= 32 or #first_lease > 12) or #(notes[2] or '') > 15 + 1 then
    -- Not plain.
  elseif rw then
    -- One of ours writes, so that nothing else fits.
    closed = known[1] == 'write' and call('HLEN', lock) == 2 and (not wish or wish == 'w' or wish == 'r')
  elseif known[1] == 'permits' and n and #n <= 10 and #limit <= 10
    and string.find(counts[2] or '', '^%d+$') and #counts[2] <= 15 then
    local first_n, first_limit = n, limit
    if wish then first_n, first_limit = string.match(wish, '^([1-9]%d*)/([1-9]%d*)$') end
    -- What does not fit, and would not be passed over: it is alone, or its client listens.
    closed = first_n and #first_n <= 10 and #first_limit <= 10 and counts[2] + first_n - first_limit > 0
      and (length == 1 or presence and sure ~= '1'
        and call('PUBSUB', 'NUMSUB', inbox_prefix .. sub(head, 1, 36))[2] > 0)
    -- Each field has its lease: all of them are ours.
    local leased = closed and call('ZCARD', leases)
    closed = closed and call('HLEN', lock) - 1 == leased
    if closed and leased - (tonumber(counts[3] or nil) or 0) ~= 0 then more = '256' end
  end
  local beat = closed and tonumber(call('ZSCORE', beats, client) or nil)
  local fresh = beat and beat <= now and now - beat < HB / 2
  local last = closed and (fresh or tonumber(call('ZREVRANGE', beats, '0', '0', 'WITHSCORES')[2]) or now)
  -- Somebody was heard lately, or nobody ever: there is no silence.
  if closed and (fresh or now <= last + 2 * HB) and string.find(notes[2] or '0', '^%d+$') then
    local tail = length > 1 and tonumber(call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]) or 0
    local number = max(now_us + 0, max(tail, notes[2] or 0) + 1)
    if tail < 9007199254740992 and number < 9007199254740992 then
      number = string.format('%.0f', number)
      if call('ZADD', order, 'NX', number, owner) == 1 then
        local is_sure = string.find(how, 's', 1, true) and ' 1 ' or ' 0 '
        call('HSET', state, owner, request .. ' ' .. lease .. is_sure .. share, 'given', number)
        if length == WIDE then
          call('HSET', state, FILLER, '')
          call('HDEL', state, FILLER)
        end
        if not fresh then
          call('ZREMRANGEBYSCORE', beats, '-inf', '(' .. now - max(BEATS_KEPT, 2 * D))
          call('ZADD', beats, now_ms, client)
        end
        local till = now + REGISTRY_TTL .. ''
        call('PEXPIREAT', state, till)
        if not fresh or length == 1 then
          call('PEXPIREAT', order, till)
          call('PEXPIREAT', beats, till)
        end
        return now_ms .. ' ' .. more .. ' queued ' .. number .. ' ' .. ends[2] + 1 - now .. ' 0 ' .. length
      end
    end
  end
  more = '0'
end

