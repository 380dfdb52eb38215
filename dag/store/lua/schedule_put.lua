-- needs: schema, sections
-- Write the next version of a schedule, with a new template or with the stored one.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   place, `tenant|name`
-- ARGV[2]   tenant
-- ARGV[3]   version that must be stored; 0: none
-- ARGV[4]   the record with the next version, JSON
-- ARGV[5]   when it needs a look, milliseconds since the epoch; empty: never
-- ARGV[6…7] most schedules of a tenant, and bytes of their templates
-- ARGV[8]   bytes of the new template; empty: the stored one stays
-- ARGV[9…]  section: the new template (name, value, …)
-- Reply     {'PUT'} | {'STALE'} | {'FULL', schedules and bytes that the tenant would have}

local place, tenant, version, wake_ms, size = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[8]

local known = redis.call('HMGET', SCHEDULE .. place, 'version', 'bytes')
if (known[1] or '0') ~= version then
  return { 'STALE' }
end
if size ~= '' then
  local use = redis.call('HMGET', SCHEDULE_USE .. tenant, 'schedules', 'bytes')
  local schedules = tonumber(use[1] or '0') + (known[1] and 0 or 1)
  local bytes = tonumber(use[2] or '0') + tonumber(size) - tonumber(known[2] or '0')
  local is_more = not known[1] or tonumber(size) > tonumber(known[2])
  if is_more and (schedules > tonumber(ARGV[6]) or bytes > tonumber(ARGV[7])) then
    return { 'FULL', tostring(schedules), string.format('%.0f', bytes) }
  end
  redis.call('HSET', SCHEDULE_USE .. tenant, 'schedules', schedules, 'bytes', string.format('%.0f', bytes))
  redis.call('HSET', SCHEDULE .. place, 'bytes', size)
  redis.call('DEL', TEMPLATE .. place)
  write_rows(TEMPLATE .. place, 9)
end
redis.call('HSET', SCHEDULE .. place, 'version', string.format('%.0f', tonumber(version) + 1), 'row', ARGV[4])
redis.call('ZADD', SCHEDULE_PLACES, 0, place)
if wake_ms == '' then
  redis.call('ZREM', SCHEDULES_DUE, place)
else
  redis.call('ZADD', SCHEDULES_DUE, wake_ms, place)
end
return { 'PUT' }
