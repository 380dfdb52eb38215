-- needs: schema, cache
-- on a full server: passes
-- Store an entry of a tenant's cache, end the claim of its node, and let the oldest entries above the limit expire.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   tenant
-- ARGV[2]   key
-- ARGV[3]   claimant, `<run>|<node>`
-- ARGV[4]   the entry, JSON
-- ARGV[5]   bytes of a small value; empty: the value is a file
-- ARGV[6]   when it was created, milliseconds since the epoch
-- ARGV[7]   when it expires, the same
-- ARGV[8]   most entries of the tenant
-- ARGV[9]   '1' if the value is small
-- Reply     the entry that it replaces, or ''

local tenant, key, claimant, entry, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local created_ms, expires_ms, most, is_small = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

local before = redis.call('HGET', CACHED .. tenant, key) or ''
redis.call('HSET', CACHED .. tenant, key, entry)
if is_small == '1' then
  redis.call('HSET', CACHED_BYTES .. tenant, key, data)
else
  redis.call('HDEL', CACHED_BYTES .. tenant, key)
end
redis.call('ZADD', CACHED_ORDER .. tenant, created_ms, key)
redis.call('ZADD', CACHE_EXPIRY, expires_ms, tenant .. '|' .. key)
local surplus = redis.call('ZCARD', CACHED_ORDER .. tenant) - most
if surplus > 0 then
  for _, old in ipairs(redis.call('ZRANGE', CACHED_ORDER .. tenant, 0, surplus - 1)) do
    redis.call('ZADD', CACHE_EXPIRY, 0, tenant .. '|' .. old)
  end
end
end_claim_of(tenant, key, claimant)
return before
