-- Takes a free simple lock under the token that was minted and written.
-- KEYS as in simple_acquire.lua
-- ARGV as in acquire.lua
-- Reply as in simple_acquire.lua
call('SET', lock, owner .. ':' .. request .. ':' .. minted, 'PX', lease)
