-- What a script that changes a latch does first, for its one request.
-- KEYS 1..3
-- ARGV 2 request   3 marker's shortest TTL, ms   4 not after, server ms
-- Reply late | that of the first copy
local first = call('GET', marker)
if first then return answer(first) end
if at_ms - ARGV[4] > 0 then return now_ms .. ' 0 late' end

-- Another copy of this request does nothing, and gets the same result, for as long as one can be carried out.
local function mark(result)
  call('DEL', marker)               -- a first write that works without free memory
  call('SET', marker, result, 'PXAT', whole(math.max(at_ms + ARGV[3], ARGV[4] + 0)))
  return result
end

