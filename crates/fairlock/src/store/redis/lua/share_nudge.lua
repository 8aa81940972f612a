-- Only the service of the line that ends every operation: sent after a reply that said MORE.
-- KEYS 1..7
-- ARGV  1
-- Reply nudged
begin()
pass_shares_on()
return finish(now_ms .. ' ' .. more .. ' nudged')
