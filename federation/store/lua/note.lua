-- Store the observations of a coordinator, unless another one has written since the read.
--
-- KEYS[1]   `Keys.registry`, hash
-- KEYS[2]   `Keys.meta`, hash
-- ARGV[1]   the version that was read
-- ARGV[2]   time of the observation, ms since the epoch
-- ARGV[3…]  field, JSON, field, JSON, …
-- Reply     1 when written, 0 when another coordinator wrote first | {'SCHEMA', schema} as all verbs

local FOUND = redis.call('HGET', KEYS[2], 'schema')
if FOUND and FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'watched_ms', ARGV[2])
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
