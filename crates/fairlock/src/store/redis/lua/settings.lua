-- The constants of a client, which it sends as one text: most calls need none of them.
-- KEYS as in head.lua
-- ARGV 1 flags (j = a Java fleet uses the shared keys; p = subscriber counts mean something), command to
--      publish with, heartbeat period HB in ms, D in ms: silent for longer is dead, fairLockWaitTimeout in ms,
--      prefix of inbox channels; a space between two
-- Reply as in head.lua
local flags, publish, HB, D, FAIR_WAIT, inbox_prefix = 'p', 'PUBLISH', 2000, 6000, 300000, 'fairlock_inbox:'
-- To take it apart costs as much as two commands, and most clients send just this.
if ARGV[1] ~= 'p PUBLISH 2000 6000 300000 fairlock_inbox:' then
  flags, publish, HB, D, FAIR_WAIT, inbox_prefix =
    string.match(ARGV[1], '^(%a*) (%a+) (%d+) (%d+) (%d+) (.*)$')
  HB, D, FAIR_WAIT = HB + 0, D + 0, FAIR_WAIT + 0
end
local fleet, presence = flags == 'jp' or flags == 'j', flags == 'p' or flags == 'jp'
local now, max = now_ms + 0, math.max
local REGISTRY_TTL = 60000          -- ms, our own keys while somebody waits; twice D if that is more
if REGISTRY_TTL < 2 * D then REGISTRY_TTL = 2 * D end
local QUEUE_TTL = 86400000          -- ms, shared queue keys while only ours use them

