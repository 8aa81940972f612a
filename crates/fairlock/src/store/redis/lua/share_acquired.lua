-- What came of an acquisition, before it is written: whoever tries takes what the line has left.
-- KEYS as in share_acquire.lua
-- ARGV as in share_acquire.lua
-- Reply as in share_acquire.lua
if trying and not hold and not got and serving and open and fits(share)
  and (last_minted or last_token) ~= '9007199254740991' then
  got = { request, take_share(owner, request, share, lease), lease }
end
