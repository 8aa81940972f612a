-- A waiting client lives. Creates no place in the line, whenever it arrives.
-- KEYS 1..7
-- ARGV  2 client   3 and on: waiters that are asked about, the oldest first
-- Reply fates, retry ms or none, foreign 0/1, for each waiter 1: stands in the line, 0: is not known, or request,
--       token and ttl ms of what it has got
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
calling = ARGV[2]
begin()
note_beat(calling)
keep_registry()
mend()
pass_shares_on()
local words = {}
for at = 3, #ARGV do
  local waiter = ARGV[at]
  local fate = '0'
  if call('ZSCORE', order, waiter) and read_record(call('HGET', state, waiter)) then
    fate = '1'
  else
    local hold = held_share(waiter)
    if hold then fate = hold.request .. ' ' .. hold.token .. ' ' .. int(hold.ends - now) end
  end
  words[#words + 1] = ' ' .. fate
end
return finish(now_ms .. ' ' .. more .. ' fates ' .. word(retry_shares_ms()) .. ' ' .. (has_foreign() and 1 or 0)
  .. table.concat(words))
