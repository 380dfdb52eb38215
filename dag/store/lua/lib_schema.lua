-- needs: keys
-- As `lib_schema.lua` of the ledger: data of another schema are left alone.
local FOUND = redis.call('HGET', META, 'schema')
if FOUND and FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
