-- Look, change nothing.
-- KEYS 1..7
-- ARGV  8 how many waiters to list
-- Reply {..., 'inspected', holder or nil, count or nil, ttl ms or nil, token or nil,
--        queue length, {owner, beat age ms or nil, order number or nil} for each listed waiter}
local MAX = 9007199254740991
local waiters = {}
local limit = tonumber(ARGV[8])
local listed = call('LRANGE', queue, 0, max(0, limit - 1))
for i = 1, math.min(limit, #listed) do
  local owner = listed[i]
  local age, number = false, false
  if ours(owner) then
    local beat = call('ZSCORE', beats, client_of(owner))
    -- Others may have written any score: what fits no reply is shown as none.
    age = beat and math.min(max(0, now - tonumber(beat)), MAX)
    number = tonumber(call('ZSCORE', order, owner) or nil)
    -- False, not nil, which would end the reply.
    number = number ~= nil and number >= 0 and number <= MAX and int(number)
  end
  waiters[#waiters + 1] = { owner, age, number }
end
return { now, 0, 'inspected', hold[1] or false, tonumber(hold[2] or nil) or false,
  hold_ttl(), last_token and int(last_token), call('LLEN', queue), waiters }
