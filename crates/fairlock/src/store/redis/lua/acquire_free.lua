-- The common case of acquire: the lock is free, nobody waits, and the owner has but this request.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
local taking = free and #how == 1 and call('EXISTS', queue, KEYS[8]) == 0
if not taking and call('EXISTS', KEYS[8]) == 1 then return now_ms .. ' 0 buried' end

