-- Let go of a simple lock, and tell those of ours that wait.
-- KEYS 1..2
-- ARGV as in release.lua; if holds are to be kept, nothing is done
-- Reply released | held, count | nothold, {holder} if there is one
if mine and ARGV[4] then return now_ms .. ' 0 held 1' end
if mine then call('DEL', lock) end
local minted = token
local lost = mine and last_token ~= token and (not last_token or last_token - token < 0)
