-- The waiter that gets the caller's hold in its place, with what its record says and its client's last beat.
-- KEYS as in share_release.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local heir, heir_beat, heir_request, heir_lease, heir_share = nil, nil, nil, nil, nil
-- Whether a writer leaves, and the head of the line wants to read.
local reads = false

