-- needs: keys
-- Refuse data of another schema. Verbs that move the lease clock check the schema in lib_clock, all others here.
-- SCHEMA is put before every verb: see `redis/scripts.py`.
local FOUND = redis.call('HGET', META, 'schema')
if FOUND and FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
