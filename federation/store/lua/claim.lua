-- needs: caller, claim
-- Claim a queued stage under a live session and a live lease, with the next fencing token. Not while the ledger recovers. The stage
-- waits no more, so what the mesh wanted for it is withdrawn.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   stage
-- ARGV[7…8] tenant and flavor of the lease that pays
-- ARGV[9]   the lease's token, '0' for a stage that needs no resources
-- ARGV[10]  most multiple of the lease's held amounts that may be claimed
-- ARGV[11]  slots with which the stage starts
-- Reply     {'CLAIMED', token, spec as JSON, '1' when it must stop else '0', inputs (node, JSON, …)}
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local stage, tenant, flavor, lease_token = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end
local state, at, holder, token, spec, cancelled =
  unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'incarnation', 'token', 'spec', 'cancelled'))
local mine = state == 'claimed' and holder == INCARNATION
if at ~= MESH or not (state == 'queued' or mine) then
  return { 'GONE' }
end
if not mine then
  if recovery_left() > 0 then
    return { 'RECOVERING', text(recovery_left()) }
  end
  local why, lease, amounts = why_unpaid(stage, tenant, flavor, lease_token, tonumber(ARGV[11]), tonumber(ARGV[10]))
  if why then
    return { why }
  end
  token = text(next_token())
  keep_token()
  make_claim(stage, token, lease, amounts, tonumber(ARGV[11]), field_of(tenant, flavor), lease_token)
end
return { 'CLAIMED', token, spec, cancelled, redis.call('HGETALL', INPUTS .. stage) }
