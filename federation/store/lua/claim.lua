-- needs: caller, lease, stage, wall
-- Take a queued stage under a live session and a live lease; the claim gets the next fencing token. Not while the ledger learns.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   stage
-- ARGV[7…8] tenant and flavor of the lease that pays
-- ARGV[9]   its token, '0' for a stage that takes nothing
-- ARGV[10]  how many times what the lease holds may be claimed under it
-- Reply     {'CLAIMED', token, spec as JSON, '1' when it is to be stopped else '0', inputs (node, JSON, …)}
--           {'GONE'} when it is not queued at this mesh any more | {'NO_LEASE'} | {'LEARN', ms} | {'MANY'}
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local stage, tenant, flavor, lease_token = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end
local state, at, member, holder, token, spec, cancelled, deadline =
  unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'member', 'incarnation', 'token', 'spec', 'cancelled', 'deadline'))
local mine = state == 'claimed' and holder == INCARNATION
if at ~= MESH or not (state == 'queued' or mine) then
  return { 'GONE' }
end
if not mine then
  if learn_left() > 0 then
    return { 'LEARN', text(learn_left()) }
  end
  local slot = cjson.decode(redis.call('HGET', STAGE .. stage, 'head')).slot
  local is_paid, lease = lease_token ~= '0' or not next(slot), nil
  if lease_token ~= '0' then
    lease = lease_of(MESH, tenant, flavor)
    is_paid = text(lease.token) == lease_token
  end
  if not is_paid then
    return { 'NO_LEASE' }
  end
  for resource, units in pairs(lease and slot or {}) do
    local taken = tonumber(redis.call('HGET', TAKEN .. MESH, field_of(tenant, flavor) .. '|' .. resource) or '0')
    if taken + units > tonumber(ARGV[10]) * (lease.held[resource] or 0) then
      return { 'MANY' }
    end
  end
  local now = text(wall_ms())
  token = text(next_token())
  keep_token()
  redis.call('HSET', STAGE .. stage, 'state', 'claimed', 'incarnation', INCARNATION, 'token', token, 'batch', '0',
    'lease', field_of(tenant, flavor), 'lease_token', lease_token, 'since', now)
  if lease then
    for resource, units in pairs(slot) do
      slot[resource] = text(units)
    end
    redis.call('HSET', STAGE .. stage, 'takes', cjson.encode(slot))
    count_taken(MESH, field_of(tenant, flavor), slot, 1)
  end
  if deadline and deadline ~= '' then
    redis.call('ZADD', OVERDUE, text(LT + tonumber(deadline)), stage)
  end
  redis.call('ZREM', READY .. MESH, member)
  redis.call('ZADD', CLAIMED .. MESH, now, stage)
end
return { 'CLAIMED', token, spec, cancelled, redis.call('HGETALL', INPUTS .. stage) }
