-- Only the hand-over that ends every operation: sent after a reply that said MORE.
-- KEYS 1..7
-- ARGV  1
-- Reply nudged
check_types()
by_ttl = true
next_holder()
return now_ms .. ' ' .. more .. ' nudged'
