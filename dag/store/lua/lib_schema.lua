-- needs: keys
-- Refuse data of another schema, as `lib_schema.lua` of the ledger does.
local FOUND = redis.call('HGET', META, 'schema')
if FOUND and FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
