-- What follows an entry of the common case.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
if length then
  if call('PTTL', state) <= REGISTRY_TTL then call('PEXPIREAT', state, now + REGISTRY_TTL) end
  if length == 1 then
    local till = string.format('%.0f', now + REGISTRY_TTL)
    call('PEXPIREAT', order, till)
    call('PEXPIREAT', beats, till)
    if fleet then
      call('PERSIST', queue)
      call('PERSIST', scores)
    else
      till = string.format('%.0f', now + QUEUE_TTL)
      call('PEXPIREAT', queue, till)
      call('PEXPIREAT', scores, till)
    end
  end
  local near = (length > ordered or not ours(hold[1])) and ' 1 ' or ' 0 '
  return now_ms .. ' 0 queued ' .. number .. ' ' .. hold_left + 1 .. near .. length
end

