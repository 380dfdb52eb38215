-- needs: clock
-- on a full server: passes
-- A part of the configured tenants. Between two parts others are served; the tree does not change but with its name.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   name of the tree that is read; '' of no tree
-- ARGV[2]   where to go on, '0' at first
-- ARGV[3]   rows to look at, about
-- Reply     {'OK', version, name, where to go on or '0', names and rows of tenants} | {'OTHER', version, name}: of the tree in force

local version, name = unpack(redis.call('HMGET', META, 'version', 'tree'))
if ARGV[1] ~= name then
  return { 'OTHER', version, name }
end
local cursor, rows = unpack(redis.call('HSCAN', TREE, ARGV[2], 'MATCH', 'tenant|*', 'COUNT', ARGV[3]))
return { 'OK', version, name, cursor, rows }
