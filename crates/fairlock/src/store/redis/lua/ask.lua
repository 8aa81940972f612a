-- What every acquisition is refused for before anything else is looked at.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
local owner, request, lease, how = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local shared = false
if exhausted then return redis.error_reply(NO_TOKEN_LEFT) end
if now_ms - ARGV[5] > 0 then return now_ms .. ' 0 late' end

