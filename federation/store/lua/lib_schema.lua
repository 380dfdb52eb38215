-- needs: keys
-- Data of another schema are left alone: what a verb that moves the lease clock sees in passing (lib_clock), all others look at here.
-- SCHEMA stands before every verb: see `redis_scripts`.
local FOUND = redis.call('HGET', META, 'schema')
if FOUND and FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
