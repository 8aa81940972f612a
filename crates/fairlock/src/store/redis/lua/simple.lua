-- What the scripts of simple locks know beside head.lua.
-- A simple lock is one string, as the many clients keep it that lock with SET key value NX PX and let
-- go by compare-and-delete. Ours is "owner:request:token"; any other value is foreign and opaque.
--
-- KEYS  1 lock string      the value of whoever holds the lock   shared with everybody
--       2 token string     last token                            shared with the other kinds
--       3 buried string    only where an operation names a request, ours
-- ARGV  as in head.lua
-- Reply as in head.lua
local VALUE_SHOWN = 256             -- bytes of a foreign value that are read and shown
local value = call('GETRANGE', lock, 0, VALUE_SHOWN - 1) -- a key of a wrong type is found here

-- Owner, request and token, all texts, if a client of ours wrote the value.
local by, of, by_token = string.match(value,
  '^(%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:[1-9]%d*):(%x+):([1-9]%d*)$')
if by and (#by > 52 or #of ~= 32 or #by_token > 16 or string.find(value, '%u')
  or by_token - 9007199254740992 >= 0) then
  by, of, by_token = nil, nil, nil
end

-- The owner, a foreign value's first bytes, or nil when free.
local holder = by or value
if value == '' and call('EXISTS', lock) == 0 then holder = nil end

