-- needs: keys
-- Entries of caches, and claims of nodes on keys.

-- Drop an entry with all that is kept of it.
local function drop_entry(tenant, key)
  redis.call('HDEL', CACHED .. tenant, key)
  redis.call('HDEL', CACHED_BYTES .. tenant, key)
  redis.call('HDEL', CACHED_HITS .. tenant, key)
  redis.call('ZREM', CACHED_ORDER .. tenant, key)
  redis.call('ZREM', CACHE_EXPIRY, tenant .. '|' .. key)
end

-- End a claim if it is the claimant's, and put `cached` into the inbox for each run that waits.
local function end_claim_of(tenant, key, claimant)
  if redis.call('HGET', CACHE_CLAIMS .. tenant, key) ~= claimant then
    return
  end
  redis.call('HDEL', CACHE_CLAIMS .. tenant, key)
  local waiting = redis.call('HGET', CACHE_WAITS .. tenant, key)
  if waiting then
    redis.call('HDEL', CACHE_WAITS .. tenant, key)
    for run in string.gmatch(waiting, '[^\n]+') do
      redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'cached', 'body', '')
    end
  end
end
