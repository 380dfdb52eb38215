-- needs: schema, cache
-- on a full server: passes
-- Remove an entry that has expired.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   tenant
-- ARGV[2]   key
-- ARGV[3]   present time, milliseconds since the epoch
-- Reply     the entry | '' when there is none, or a new one

local tenant, key, now_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local expires_ms = redis.call('ZSCORE', CACHE_EXPIRY, tenant .. '|' .. key)
if not expires_ms or tonumber(expires_ms) > now_ms then
  return ''
end
local entry = redis.call('HGET', CACHED .. tenant, key) or ''
drop_entry(tenant, key)
return entry
