-- What a hand-over knows.
-- KEYS as in head.lua
-- ARGV as in head.lua
-- Reply as in head.lua
-- freed: this call made the lock free. wiped: the lock's key is gone by a DEL of this call.
-- caller, calling: the owner and the client whose own call this is; they hear by the reply.
-- heir: the waiter that gets the lock, with its request, its lease and its client's last beat.
local freed, wiped, caller, calling = false, false, nil, nil
local heir, heir_request, heir_lease, heir_beat, at_head = nil, nil, nil, nil, true
