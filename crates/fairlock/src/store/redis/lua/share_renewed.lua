-- Who has all of a lock that was not renewed, after its line was served.
-- KEYS as in share_renew.lua
-- ARGV as in share_renew.lua
-- Reply as in share_renew.lua
if body == 'nothold' then holder = whole_holder() end
