-- The common case of acquire where others are before the caller: one owner holds the lock, and a client
-- that was heard not long ago gets one more waiter, at the end of the queue. Same result as acquire's; whatever
-- is not plainly that case is left to it. Constant numbers are text here, because the server makes text of a number
-- with printf, which costs it as much as a small command.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
if not free and not exhausted and hold[1] ~= ARGV[8] and ARGV[11] == 'W' and ARGV[12] == '0'
  and ARGV[15] == '0' and now <= tonumber(ARGV[13]) and call('EXISTS', KEYS[8]) == 0 then
  local owner = ARGV[8]
  local beat = tonumber(call('ZSCORE', beats, string.sub(owner, 1, 36)) or nil)
  -- Where the last number is known, a record of the owner's own is not the only field, and may be written over.
  local given = beat and beat <= now and now - beat < HB / 2 and call('HGET', state, 'given')
  local ttl = given and call('PTTL', lock)
  local behind = ttl and ttl >= 0
  local tail = behind and call('LINDEX', queue, '-1')
  local scored = behind and call('ZMSCORE', scores, owner, tail or owner)
  if scored and not scored[1] and (not tail or scored[2]) then
    local last = call('ZREVRANGE', order, '0', '0', 'WITHSCORES')[2]
    local number = max(now_us, max(tonumber(last or 0), tonumber(given) or 0) + 1)
    local plain = number < 9007199254740992 and (not tail or last)
    number = fmt('%.0f', number)
    -- The first write, and the last question: had it an order number, nothing is written.
    if plain and call('ZADD', order, 'NX', number, owner) == 1 then
      local length = call('RPUSH', queue, owner)
      local ordered = call('ZCARD', order)
      local ahead = max(0, length - ordered)
      call('ZADD', scores, max(tonumber(scored[2] or 0), now + FAIR_WAIT * (1 + ahead)), owner)
      call('HSET', state, owner, ARGV[9] .. ' ' .. ARGV[10] .. ' ' .. ARGV[14], 'given', number)
      if call('PTTL', state) <= REGISTRY_TTL then
        call('PEXPIREAT', state, now + REGISTRY_TTL)
      end
      if length == 1 then
        call('PEXPIREAT', order, now + REGISTRY_TTL)
        call('PEXPIREAT', beats, now + REGISTRY_TTL)
        if fleet then
          call('PERSIST', queue)
          call('PERSIST', scores)
        else
          call('PEXPIREAT', queue, now + QUEUE_TTL)
          call('PEXPIREAT', scores, now + QUEUE_TTL)
        end
      end
      local foreign = (ahead > 0 or not ours(hold[1])) and 1 or 0
      return { now, 0, 'queued', number, ttl + 1, foreign, length }
    end
  end
end
