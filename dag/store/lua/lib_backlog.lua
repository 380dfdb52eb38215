-- needs: keys
-- What tenants have open: a run is counted at its tenant and at all above it, from its creation until nobody has to look at
-- it any more. How much it was counted with stands in its own `weight`, so the same is taken off again.

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

-- Take the run out of ACTIVE; 1 the first time, else 0.
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
