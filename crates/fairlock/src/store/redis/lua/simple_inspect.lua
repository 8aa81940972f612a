-- Look at a simple lock, change nothing. It has no queue.
-- KEYS 1 and 4
-- ARGV as in inspect.lua
-- Reply {..., 'inspected', holder or nil, 1 or nil, ttl ms or nil, token or nil, 0, {}}
return { now, 0, 'inspected', holder(), not free and 1, ttl, last_token and int(last_token), 0, {} }
