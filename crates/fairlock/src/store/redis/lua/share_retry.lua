-- When to look again.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- Milliseconds until something may change without anybody's call, or false.
local function retry_shares_ms()
  if waiting == 0 then return false end
  local till = first_end and first_end + 1
  if not till and mode then
    local left = ttl_of(lock)
    till = left and now + left + 1
  end
  if gather and gather > now and gather <= now + HB then till = till and math.min(till, gather) or gather end
  if left_to_guests() then till = till and math.min(till, guest) or guest end
  return till and max(0, till - now)
end

