-- needs: schema, cache
-- on a full server: passes
-- Look a key of a tenant's cache up; without a value, claim it.
--
-- A claim counts as long as its run goes on.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   tenant
-- ARGV[2]   key
-- ARGV[3]   run that asks
-- ARGV[4]   its node
-- ARGV[5]   present time, milliseconds since the epoch
-- ARGV[6]   '1' to drop a value that is there
-- Reply     {'HIT', entry, its bytes or ''} | {'IN_FLIGHT', `<run>|<node>`} | {'CLAIMED'}

local tenant, key, run, node, now_ms, is_fresh = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local claimant = run .. '|' .. node

local entry = redis.call('HGET', CACHED .. tenant, key)
if entry then
  local expires_ms = redis.call('ZSCORE', CACHE_EXPIRY, tenant .. '|' .. key)
  if is_fresh == '1' then
    drop_entry(tenant, key)
  elseif expires_ms and tonumber(expires_ms) > now_ms then
    redis.call('HINCRBY', CACHED_HITS .. tenant, key, 1)
    return { 'HIT', entry, redis.call('HGET', CACHED_BYTES .. tenant, key) or '' }
  end
end

local holder = redis.call('HGET', CACHE_CLAIMS .. tenant, key)
if holder and holder ~= claimant then
  local other = string.match(holder, '^([^|]+)|')
  if redis.call('EXISTS', RUN .. other) == 1 and not redis.call('ZSCORE', ENDED, other) then
    local waiting = redis.call('HGET', CACHE_WAITS .. tenant, key) or ''
    if not string.find('\n' .. waiting, '\n' .. run .. '\n', 1, true) then
      redis.call('HSET', CACHE_WAITS .. tenant, key, waiting .. run .. '\n')
    end
    return { 'IN_FLIGHT', holder }
  end
end
redis.call('HSET', CACHE_CLAIMS .. tenant, key, claimant)
return { 'CLAIMED' }
