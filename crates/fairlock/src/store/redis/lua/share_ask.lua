-- What an acquisition of a share knows before anything is looked at.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
-- taking: the share is taken at once, beside a last lease that ends at last_end, if there is one. minting: under
-- a new token. used, named: the permits in use and how many holders name the limit, without the caller.
local share, timeout = ARGV[7], nil
local n, limit = string.match(share, '^([1-9]%d*)/([1-9]%d*)$')
if rw then timeout = tagged .. ':' .. owner .. ':rwlock_timeout:1' end
-- there: how many keys were there, if that was asked.
local taking, minting, token, last_end, used, named, there = false, true, nil, nil, 0, 0, 0

