-- Changes of a hold by its holder, which are numbered: a late copy of an older one does nothing.
-- KEYS as in share_keys.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local function set_count(owner, hold, count, change)
  local body = 'stale'
  if change - hold.change < 0 then return body end
  touch_state()
  if rw then call('HSET', lock, hold.share == 'w' and owner .. ':write' or owner, count) end
  hold.count, hold.change = count, change
  write_hold(owner, hold)
  body = 'held'
  return body .. ' ' .. count
end

