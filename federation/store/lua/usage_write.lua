-- needs: schema
-- on a full server: passes
-- Write rows of use and how far they count, if no other writer came first; remove the entries that they count, and old days.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   version of the state that the rows are based on
-- ARGV[2]   id of the last entry that is counted now
-- ARGV[3]   rows of days before this one are removed
-- ARGV[4]   number of counted entries
-- ARGV[5]   number of changed holdings and reckonings
-- ARGV[6…]  ids of the entries; name and JSON of what changed, empty: gone; day, name and sums of each row
-- Reply     'OK' | 'STALE' when the version differs

local version, cursor, first_day = ARGV[1], ARGV[2], tonumber(ARGV[3])
local changes_at = 6 + tonumber(ARGV[4])
local rows_at = changes_at + 2 * tonumber(ARGV[5])

if (redis.call('HGET', USAGE, 'version') or '0') ~= version then
  return 'STALE'
end
redis.call('HINCRBY', USAGE, 'version', 1)
redis.call('HSET', USAGE, 'cursor', cursor)
for place = changes_at, rows_at - 1, 2 do
  if ARGV[place + 1] == '' then
    redis.call('HDEL', USAGE, ARGV[place])
  else
    redis.call('HSET', USAGE, ARGV[place], ARGV[place + 1])
  end
end
for place = rows_at, #ARGV, 3 do
  local day = ARGV[place]
  redis.call('HSET', USAGE_OF .. day, ARGV[place + 1], ARGV[place + 2])
  redis.call('ZADD', USAGE_DAYS, day, day)
end
for _, day in ipairs(redis.call('ZRANGEBYSCORE', USAGE_DAYS, '-inf', '(' .. tostring(first_day))) do
  redis.call('UNLINK', USAGE_OF .. day)
  redis.call('ZREM', USAGE_DAYS, day)
end
for place = 6, changes_at - 1 do
  redis.call('XDEL', USAGE_LOG, ARGV[place])
end
return 'OK'
