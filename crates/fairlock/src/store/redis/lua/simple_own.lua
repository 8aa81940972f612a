-- Whether the caller holds a simple lock, without a look at who else may.
-- KEYS as in simple.lua
-- ARGV 2 owner   3 token
-- Reply as in head.lua
local owner, token = ARGV[2], ARGV[3]
-- No value of ours is that long. A key of a wrong type is found here.
local value = call('GETRANGE', lock, '0', '127')
local request = sub(value, #owner + 2, -#token - 2)
local mine = value == owner .. ':' .. request .. ':' .. token
  and #request == 32 and string.find(request, '^[0-9a-f]+$') ~= nil

