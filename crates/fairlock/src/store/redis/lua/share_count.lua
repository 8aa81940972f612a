-- Changes of a hold by its holder, which are numbered: a late copy of an older one does nothing.
-- KEYS as in share_keys.lua
-- ARGV as in share_release.lua
-- Reply as in share_release.lua
local function set_count(owner, hold, count, change)
  local body = 'stale'
  if change - hold.change < 0 then return body end
  touch_state()
  -- A reader's field stays 1: for each field with more, Redisson 3.52 wants as many timeout keys, or stops renewing.
  if hold.share == 'w' then call('HSET', lock, owner .. ':write', count) end
  hold.count, hold.change = count, change
  write_hold(owner, hold)
  body = 'held'
  return body .. ' ' .. count
end

