-- Which commands of the scripts the user may not run: asked when a connection is made, because a
-- script that is stopped in the middle has done half of what it does. Stands alone, without the
-- prelude: it is about no lock. Servers from 7.0 on can be asked without running anything. Before, and
-- where that says no (it may be the key), each command is tried in a form that changes nothing, or what
-- the last DEL takes away; the server looks at the right before it looks at anything else. Where the key
-- is forbidden, the right to run the command was there.
-- KEYS  none: without the right to the key the commands can be asked about all the same
-- ARGV  1 a key that nobody uses   2 a channel that nobody listens to
--       3... the command to publish with: the first of these that the server knows
-- Reply {command, ...}: those that are denied
local key, channel = ARGV[1], ARGV[2]
local denied, ran = {}, false

-- Neither counted as commands nor told in ACL LOG: a crowd that comes back asks this.
local function is_allowed(...)
  if not redis.acl_check_cmd then return false end
  local asked, allowed = pcall(redis.acl_check_cmd, ...)
  return asked and allowed
end

local function try(name, ...)
  if is_allowed(name, ...) then return true end
  ran = true
  local reply = redis.pcall(name, ...)
  local message = type(reply) == 'table' and reply.err
  if message and (string.find(message, 'run this command', 1, true)
    or string.find(message, 'permissions to run', 1, true)) then
    denied[#denied + 1] = name
    return false
  end
  return not (message and string.find(message, 'nknown', 1, true)) or nil
end

for _, name in ipairs({ 'GET', 'PTTL', 'HGETALL', 'HLEN', 'LLEN', 'ZCARD', 'EXISTS', 'PERSIST', 'LPOP' }) do
  try(name, key)
end
for _, name in ipairs({ 'HGET', 'HEXISTS', 'HDEL', 'HMGET', 'LPOS', 'LINDEX', 'ZSCORE', 'ZMSCORE', 'ZRANK',
  'ZREM' }) do
  try(name, key, '0')
end
for _, name in ipairs({ 'GETRANGE', 'LRANGE', 'LREM', 'ZRANGE', 'ZREVRANGE', 'ZREVRANGEBYSCORE',
  'ZREMRANGEBYSCORE' }) do
  try(name, key, '0', '0')
end
try('TIME')
try('PUBSUB', 'NUMSUB', channel)
local publish
for at = 3, #ARGV do
  if try(ARGV[at], channel, '') ~= nil then
    publish = ARGV[at]
    break
  end
end
-- No script may run it, so that it cannot be tried; nobody would notice later that it is missing.
if publish == 'SPUBLISH' and not is_allowed('SUNSUBSCRIBE', channel) then
  denied[#denied + 1] = 'SUNSUBSCRIBE'
end
try('HSET', key, '', '', '')        -- a value is missing
try('SET', key, '', 'XX')           -- there is no such key
try('ZADD', key, 'XX', '0', '')
try('LINSERT', key, 'BEFORE', '', '')
if try('DEL', key) then
  try('RPUSH', key, '')
  try('LPUSH', key, '')
  try('PEXPIREAT', key, '0')
  if ran then redis.pcall('DEL', key) end
else
  try('PEXPIREAT', key, '0')
end
return denied
