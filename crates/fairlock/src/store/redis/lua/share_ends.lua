-- As share_waits.lua, for operations that end holds. They go on where a key of the line is of a wrong type: whoever waits
-- is refused then, so that the share is given to nobody.
-- KEYS as in share_keys.lua
-- ARGV as in share_facts.lua
-- Reply as in head.lua
-- broken: what the server says of such a key.
local waiting, broken = redis.pcall('ZCARD', order), false
local mine = call('HMGET', holds, me, 'used', 'phase')
local notes = redis.pcall('HMGET', state, 'gather', 'amnesty', 'silence', 'removed', 'given', me, 'guest')
for _, read in ipairs({ waiting, notes, redis.pcall('ZCARD', beats) }) do
  broken = type(read) == 'table' and read.err or broken
end
if broken and not string.find(broken, 'WRONGTYPE', 1, true) then return redis.error_reply(broken) end
if broken then waiting, notes = 0, {} end
