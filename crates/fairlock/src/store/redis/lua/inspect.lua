-- Look, change nothing.
-- KEYS 1..7
-- ARGV  8 how many waiters to list
-- Reply {..., 'inspected', holder or nil, count or nil, ttl ms or nil, token or nil,
--        queue length, {owner, beat age ms or nil} for each listed waiter}
local waiters = {}
local limit = tonumber(ARGV[8])
local listed = call('LRANGE', queue, 0, max(0, limit - 1))
for i = 1, math.min(limit, #listed) do
  local owner = listed[i]
  local beat = ours(owner) and call('ZSCORE', beats, client_of(owner))
  waiters[#waiters + 1] = { owner, beat and max(0, now - beat) }
end
return { now, 0, 'inspected', hold[1] or false, hold[2] and shown(hold[2]) or false,
  hold_ttl(), last_token and int(last_token), call('LLEN', queue), waiters }
