-- The reply that names who has all of the lock, if somebody has.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local reply = now_ms .. ' ' .. more .. ' ' .. body .. words
if holder then reply = { reply, cut(holder) } end
