-- Who waits: what the operations on shares know before they write.
-- KEYS as in share_keys.lua
-- ARGV as in share_facts.lua
-- Reply as in head.lua
local broken = false                -- see share_ends.lua
local waiting = call('ZCARD', order)
local mine = call('HMGET', holds, me, 'used', 'phase')
local notes = call('HMGET', state, 'gather', 'amnesty', 'silence', 'removed', 'given', me, 'guest')
call('ZCARD', beats)
