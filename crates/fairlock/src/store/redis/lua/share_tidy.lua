-- Once nobody holds or waits our own keys go; not right after a waiter was removed as dead: it
-- may return, and must not be taken for one that comes after a loss of state. And not while the last
-- order number is ahead of the clock, which would then give smaller ones.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
if waiting == 0 and leased == 0 and not broken and not notes[4] and (whole(notes[5]) or 0) - now_us <= 0 then
  call('DEL', order, state, beats)
end
