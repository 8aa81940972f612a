-- Leases that are over, where the line is served, and whether it is looked at.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
if mode and first_end and first_end < now then end_leases() end
local crowded = waiting > 0
if crowded and left_to_guests() then crowded, open = false, false end
