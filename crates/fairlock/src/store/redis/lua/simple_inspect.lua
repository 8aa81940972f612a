-- Look at a simple lock, change nothing. It has no queue.
-- KEYS 1..2
-- ARGV as in inspect.lua
-- Reply as in inspect.lua: count 1, queue length 0, no waiters
local text = now_ms .. ' 0 inspected ' .. (holder and '1 ' or '- ') .. word(ttl_of(lock)) .. ' '
  .. (last_token or '-') .. ' 0'
if not holder then return text end
return { text, holder }
