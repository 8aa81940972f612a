-- Look at a simple lock, change nothing. It has no queue.
-- KEYS 1..2
-- ARGV as in inspect.lua
-- Reply as in inspect.lua: count 1, queue length 0, no waiters
local ttl = call('PTTL', lock)
local text = now_ms .. ' 0 inspected ' .. (holder and '1 ' or '- ') .. (ttl >= 0 and ttl or '-') .. ' '
  .. (last_token or '-') .. ' 0'
if not holder then return text end
return { text, holder }
