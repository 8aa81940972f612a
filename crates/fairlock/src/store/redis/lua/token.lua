-- Checks the last token, unless it is the very one that the caller names, which is a number.
-- KEYS as in head.lua
-- ARGV 3 the token of a hold, where the operation names one
-- Reply as in head.lua
-- The last token of all is given: whoever has it renews and releases, and nobody gets another.
local NO_TOKEN_LEFT = 'FAIRLOCK_TOKEN the token key has reached 2^53'
local exhausted = last_token == '9007199254740991'
-- How far the clock is ahead of the last token; not above 0 where that was not asked.
local lead = -1
if last_token and last_token ~= ARGV[3] then
  if #last_token > 16 or not string.find(last_token, '^%d+$') then
    return redis.error_reply('FAIRLOCK_TOKEN the token key does not hold a whole number below 2^53')
  end
  lead = now_us - last_token
  if lead <= 0 and last_token - 9007199254740991 > 0 then return redis.error_reply(NO_TOKEN_LEFT) end
end

