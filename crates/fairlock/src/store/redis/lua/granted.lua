-- The answer to an acquisition that has taken the lock.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
do return now_ms .. ' ' .. more .. ' granted ' .. minted .. ' ' .. lease end
