-- needs: clock
-- on a full server: passes
-- Return a part of the configured tenants. Other calls run between two parts; the tree changes only with its name.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   name of the tree to read; '' for none
-- ARGV[2]   cursor, '0' at first
-- ARGV[3]   approximate number of rows to scan
-- Reply     {'OK', version, name, next cursor or '0', names and rows of tenants} | {'OTHER', version, name}: of the tree in force

local version, name = unpack(redis.call('HMGET', META, 'version', 'tree'))
if ARGV[1] ~= name then
  return { 'OTHER', version, name }
end
local cursor, rows = unpack(redis.call('HSCAN', TREE, ARGV[2], 'MATCH', 'tenant|*', 'COUNT', ARGV[3]))
return { 'OK', version, name, cursor, rows }
