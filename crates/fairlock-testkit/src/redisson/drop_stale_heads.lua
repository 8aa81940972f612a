-- Put in front of acquire, unlock and force_unlock.
-- Drops waiters at the head whose time has passed by the caller's clock. A head without a time is
-- never dropped, and nobody behind the head is looked at.
local function drop_stale_heads(queue, timeouts, now)
    local head = redis.call('LINDEX', queue, 0)
    while head do
        local dead_after = redis.call('ZSCORE', timeouts, head)
        if not dead_after or tonumber(dead_after) > now then
            return
        end
        redis.call('ZREM', timeouts, head)
        redis.call('LPOP', queue)
        head = redis.call('LINDEX', queue, 0)
    end
end
