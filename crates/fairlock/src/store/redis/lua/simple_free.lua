-- The common case of simple_acquire: the lock is free.
-- KEYS as in simple_acquire.lua
-- ARGV as in acquire.lua
-- Reply as in simple_acquire.lua
local owner, request, lease = ARGV[2], ARGV[3], ARGV[4]
local taking = not exhausted and now_ms - ARGV[5] <= 0 and call('EXISTS', lock, KEYS[3]) == 0

