-- The answer to an acquisition.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
local body, by
if hold and shared and hold.request ~= request then
  -- Another request of an owner that several share; else it is a copy of the one that got it.
  body = 'self'
  words = ' ' .. hold.count
elseif hold then
  body = 'granted'
  words = ' ' .. hold.token .. ' ' .. word(hold.ends - now)
  by = hold.request
elseif got and trying and shared and got[1] ~= request then
  -- It had been waiting.
  body = 'self'
  words = ' 1'
elseif got then
  body = 'granted'
  words = ' ' .. got[2] .. ' ' .. got[3]
  by = got[1]
elseif trying then
  local left = first_end and max(0, first_end - now)
  if not left and mode then left = ttl_of(lock) end
  body = 'busy'
  words = ' ' .. word(left)
else
  body = 'queued'
  words = string.format(' %.0f ', number) .. word(retry_shares_ms()) .. (has_foreign() and ' 1 ' or ' 0 ') .. length
end
-- An owner's acquisition may have returned to its place; its hold is named by the request that got it.
if by and by ~= request then words = words .. ' ' .. by end
-- Whether permits are held under another limit than the one that the caller was admitted with.
if limit and mode and body ~= 'self' and body ~= 'busy' then
  count_limit(limit, 0)
  if leased ~= named[limit] then more = more + 256 end
end
local reply = now_ms .. ' ' .. more .. ' ' .. body .. words
