-- Writes what the line's service has decided: who leaves the line, and who holds from now on.
-- KEYS as in share_keys.lua
-- ARGV as in head.lua
-- Reply as in head.lua
if granted > 0 then
  -- Works without free memory, and so does everything after it: the line is served. An acquisition of its own is not.
  if out[1] then touch_state() end
  if minting then write_token(last_minted) end
  if mode == 'read' then
    records[#records + 1] = 'phase'
    records[#records + 1] = mine[3]
  elseif not rw then
    records[#records + 1] = 'used'
    records[#records + 1] = used
    for limit, by in pairs(named) do
      if by > 0 then
        records[#records + 1] = 'limit:' .. limit
        records[#records + 1] = by
      end
    end
  end
  lock_fields[2] = mode
  fields = fields + set_many(lock, lock_fields, granted)
  set_many(holds, records, granted)
  leased = leased + add_many(ends_of, granted)
  if mode == 'read' then
    for at = 1, 2 * granted, 2 do keep_for_java(ends_of[at + 1], ends_of[at]) end
  end
  changed = true
end
-- Last: where a slot moves, a script is stopped at a key that it has just removed, and who waits must keep its place then.
if out[1] then
  call('ZREM', order, unpack(out))
  call('HDEL', state, unpack(out))
  waiting = waiting - #out
end
