-- needs: caller, lease
-- Take a queued stage under a live session and a live lease; the claim gets the next fencing token. Not while the ledger learns.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   stage
-- ARGV[7…8] tenant and flavor of the lease that pays
-- ARGV[9]   its token, '0' for a stage that takes nothing
-- Reply     {'CLAIMED', token, spec as JSON, '1' when it is to be stopped else '0', inputs (node, JSON, …)}
--           {'GONE'} when it is not queued at this mesh any more | {'NO_LEASE'} | {'LEARN', ms}
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local stage, tenant, flavor, lease_token = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end
local state, at, member, holder, token, spec, cancelled =
  unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'member', 'incarnation', 'token', 'spec', 'cancelled'))
local mine = state == 'claimed' and holder == INCARNATION
if at ~= MESH or not (state == 'queued' or mine) then
  return { 'GONE' }
end
if not mine then
  if learn_left() > 0 then
    return { 'LEARN', text(learn_left()) }
  end
  local is_paid = lease_token ~= '0' or not next(cjson.decode(redis.call('HGET', STAGE .. stage, 'head')).slot)
  if lease_token ~= '0' then
    is_paid = text(lease_of(MESH, tenant, flavor).token) == lease_token
  end
  if not is_paid then
    return { 'NO_LEASE' }
  end
  token = text(next_token())
  keep_token()
  redis.call('HSET', STAGE .. stage, 'state', 'claimed', 'incarnation', INCARNATION, 'token', token, 'batch', '0',
    'lease', field_of(tenant, flavor), 'lease_token', lease_token)
  redis.call('ZREM', READY .. MESH, member)
  redis.call('SADD', CLAIMED .. MESH, stage)
end
return { 'CLAIMED', token, spec, cancelled, redis.call('HGETALL', INPUTS .. stage) }
