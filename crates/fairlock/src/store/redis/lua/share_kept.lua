-- How long what we know of the holders is kept: D longer than the last of them, and so rounded up that most changes
-- of a hold need not set it.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
local KEPT_STEP = 8192              -- ms
local BEATS_KEPT = 60000            -- ms, older beats are forgotten; twice D if that is more
local function kept_until(ends)
  local till = ends + D
  return till - till % KEPT_STEP + KEPT_STEP
end

