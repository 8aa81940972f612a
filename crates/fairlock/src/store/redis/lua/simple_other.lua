-- Somebody else holds the simple lock, or nobody.
-- KEYS as in simple_release.lua
-- ARGV as in simple_release.lua
-- Reply as in simple_release.lua
if not holder then return now_ms .. ' 0 nothold' end
return { now_ms .. ' 0 nothold', holder }
