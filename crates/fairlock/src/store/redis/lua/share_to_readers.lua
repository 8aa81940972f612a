-- All who read next have their shares, if that was plain.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
if cohort() then return now_ms .. ' 0 released' end
