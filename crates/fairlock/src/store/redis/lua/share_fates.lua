-- What became of waiters.
-- KEYS as in share_beat.lua
-- ARGV as in share_beat.lua
-- Reply as in share_beat.lua
local fates = {}
if ARGV[3] then
  local asked = { unpack(ARGV, 3) }
  local numbers, wishes = call('ZMSCORE', order, unpack(asked)), call('HMGET', state, unpack(asked))
  for i, waiter in ipairs(asked) do
    local fate = '0'
    if numbers[i] and read_record(wishes[i]) then
      fate = '1'
    elseif mode then
      local till = end_of(call('ZSCORE', leases, waiter))
      local got = till and till >= now and read_hold(call('HGET', holds, waiter))
      if got and call('HEXISTS', lock, got.share == 'w' and waiter .. ':write' or waiter) == 1 then
        fate = got.request .. ' ' .. got.token .. ' ' .. word(till - now)
      end
    end
    fates[i] = ' ' .. fate
  end
end
local reply = now_ms .. ' ' .. more .. ' fates ' .. word(retry_shares_ms()) .. (has_foreign() and ' 1' or ' 0')
  .. table.concat(fates)
