-- Writes `minted` as the last token. A series that a Java client began, or may continue, gets no TTL from us.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
if foreign or string.byte(ARGV[1]) == 106 or (last_token and call('PTTL', tokens) == -1) then
  call('SET', tokens, minted)
elseif minted == now_us then
  call('SET', tokens, minted, 'PX', TOKEN_TTL)
else
  call('SET', tokens, minted, 'PXAT', math.max(now_ms + 0, math.floor(minted / 1000)) + TOKEN_TTL)
end
last_token, lead = minted, 0
