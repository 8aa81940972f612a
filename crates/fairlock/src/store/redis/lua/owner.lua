-- Whose an owner is.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- Ours: a version-8 UUID, a colon, 1 to 15 digits. Anything else is foreign and opaque.
local function ours(id)
  return #id <= 52
    and string.find(id, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:[1-9]%d*$') ~= nil
    and string.lower(id) == id
end

