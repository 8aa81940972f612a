-- Only the service of the line that ends every operation: sent after a reply that said MORE.
-- KEYS 1..7
-- ARGV  1
-- Reply nudged
local holder, body = nil, 'nudged'
begin()
