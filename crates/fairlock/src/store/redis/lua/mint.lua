-- The next token: above the last, and carried by time.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local minted = now_us
if last_token and lead <= 0 and now_us - last_token <= 0 then minted = string.format('%.0f', last_token + 1) end
