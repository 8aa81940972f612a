-- The lock went to the heir, and that is all.
-- KEYS as in release.lua
-- ARGV as in release.lua
-- Reply as in release.lua
if heir then return now_ms .. ' 0 released' end

