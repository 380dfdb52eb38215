-- needs: schema
-- on a full server: passes
-- Remove a schedule with its template.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   place, `tenant|name`
-- ARGV[2]   tenant
-- Reply     1 | 0 if there is none

local place, tenant = ARGV[1], ARGV[2]

local size = redis.call('HGET', SCHEDULE .. place, 'bytes')
if not size then
  return 0
end
redis.call('DEL', SCHEDULE .. place, TEMPLATE .. place)
redis.call('ZREM', SCHEDULE_PLACES, place)
redis.call('ZREM', SCHEDULES_DUE, place)
redis.call('HINCRBY', SCHEDULE_USE .. tenant, 'bytes', '-' .. size)
if redis.call('HINCRBY', SCHEDULE_USE .. tenant, 'schedules', -1) == 0 then
  redis.call('DEL', SCHEDULE_USE .. tenant)
end
return 1
