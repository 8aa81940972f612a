-- What an entry at the end of the queue knows.
-- KEYS as in acquire.lua
-- ARGV as in acquire.lua
-- Reply as in acquire.lua
-- least: the score of the tail. last: the largest number in the queue. given: the largest of all, for who is
-- out of the queue just now has no number in it, and the clock may have gone back since that was given.
local number, length, ordered, hold_left, least, last, given = nil, nil, nil, -1, 0, 0, 0
local record = request .. ' ' .. lease .. (#how > 1 and string.find(how, 's', 1, true) and ' 1' or ' 0')
local entering = false

