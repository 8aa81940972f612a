-- A client was heard.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local function note_beat(client)
  notice_silence()
  call('ZREMRANGEBYSCORE', beats, '-inf', '(' .. now - max(BEATS_KEPT, 2 * D))
  call('ZADD', beats, now_ms, client)
end

