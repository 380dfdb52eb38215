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

-- Return the reply for a run that may not be open beside the others: {'FULL', tenant, its open runs,
-- their bytes, bytes of this run} | {'MEMORY'}; nil if it may.
local function no_room_for(tenant, weight, runs_max, bytes_max, percent_max)
  local path = ''
  for part in string.gmatch(tenant, '[^/]+') do
    path = path == '' and part or path .. '/' .. part
    local open = redis.call('HMGET', BACKLOG .. path, 'runs', 'bytes')
    local runs, bytes = tonumber(open[1] or '0'), tonumber(open[2] or '0')
    if runs + 1 > tonumber(runs_max) or bytes + tonumber(weight) > tonumber(bytes_max) then
      return { 'FULL', path, tostring(runs), string.format('%.0f', bytes), weight }
    end
  end
  local memory = redis.call('INFO', 'memory')
  local used, limit = tonumber(string.match(memory, 'used_memory:(%d+)')), tonumber(string.match(memory, 'maxmemory:(%d+)'))
  return limit > 0 and used * 100 > limit * tonumber(percent_max) and { 'MEMORY' } or nil
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
