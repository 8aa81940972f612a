-- Look, change nothing.
-- KEYS 1..7
-- ARGV  2 how many waiters to list
-- Reply inspected, count or none, ttl ms or none, token or none, queue length, for each listed waiter
--       beat age ms or none and order number or none, {the holder if there is one, the waiters listed}
local MAX = 9007199254740991
local length = call('LLEN', queue)
local text = now_ms .. ' 0 inspected ' .. (hold[2] or '-') .. ' ' .. word(ttl_of(lock)) .. ' '
  .. (last_token or '-') .. ' ' .. length
local reply = { '', hold[1] and cut(hold[1]) }
if length > 0 and ARGV[2] ~= '0' then
  local words, listed = { text }, call('LRANGE', queue, '0', ARGV[2] - 1)
  for from = 1, #listed, 100 do
    local clients = {}
    for i = from, math.min(from + 99, #listed) do clients[#clients + 1] = sub(listed[i], 1, 36) end
    local heard = call('ZMSCORE', beats, unpack(clients))
    local given = call('ZMSCORE', order, unpack(listed, from, from + #clients - 1))
    for i, beat in ipairs(heard) do
      local owner, number = listed[from + i - 1], given[i]
      local is_ours = ours(owner)
      -- Others may have written any score: what fits no reply is shown as none.
      local age = '-'
      if beat and is_ours then
        age = math.min(math.max(0, now_ms - beat), MAX)
        -- The cheaper form is for numbers that fit in 32 bits.
        age = string.format(age < 2147483648 and '%d' or '%.0f', age)
      end
      if not number or not is_ours or number - 0 < 0 or number - MAX > 0 then
        number = '-'
      elseif not string.find(number, '^%d+$') then
        number = string.format('%.0f', number)
      end
      words[#words + 1] = age .. ' ' .. number
      reply[#reply + 1] = cut(owner)
    end
  end
  text = table.concat(words, ' ')
end
if #reply == 1 then return text end
reply[1] = text
return reply
