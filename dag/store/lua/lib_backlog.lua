-- needs: keys
-- Open runs and bytes of tenants. A run counts for its tenant and all ancestors, from its creation until it is settled.
-- Its own `weight` records the counted bytes, so the same number is subtracted again.

local function count_open(tenant, runs, bytes)
  local path = ''
  for part in string.gmatch(tenant, '[^/]+') do
    path = path == '' and part or path .. '/' .. part
    redis.call('HINCRBY', BACKLOG .. path, 'bytes', bytes)
    if redis.call('HINCRBY', BACKLOG .. path, 'runs', runs) == 0 then
      redis.call('DEL', BACKLOG .. path)
    end
  end
end

-- Remove the run from ACTIVE; return 1 the first time, else 0.
local function close_run(run)
  if redis.call('SREM', ACTIVE, run) == 0 then
    return 0
  end
  local tenant, weight = unpack(redis.call('HMGET', RUN .. run, 'tenant', 'weight'))
  if tenant and weight then
    count_open(tenant, -1, '-' .. weight)
  end
  return 1
end
