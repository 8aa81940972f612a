-- Where many wait or hold.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- A server keeps a small hash or sorted set as a list, and walks over that for each member that is read or added. It
-- makes a table of it, for good, when a member of more than 64 bytes comes, which may go again at once.
local WIDE = 24                     -- members, from which on that pays
local FILLER = '-----------------------------------------------------------------'
