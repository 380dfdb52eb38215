-- needs: caller, claim
-- on a full server: passes
-- Return the state of a session's claims. While the ledger recovers, it makes lost claims again, under their old tokens.
--
-- The stage must be queued: a stage that was claimed or cancelled since stays so. The token must be older than the epoch: no other
-- token can be lost. The stage must have been submitted again unchanged, under a lease that is held as when it paid, so a revoke with
-- `hard` is not undone; an ended stage needs no resources any more. And the mesh must be able to repeat all reports of the claim.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   most multiple of a lease's held amounts that may be claimed
-- ARGV[7…]  nine for each claim: stage, token, tenant and flavor of the lease that paid, its token ('0': none), SHA-1 of the spec,
--           '1' when all its reports can be repeated, '1' when it has ended, slots with which the stage has started
-- Reply     {'OK', for each the last accepted batch; -1: the claim is not current; -2: the stage is unknown and may be submitted}
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local GONE, UNKNOWN = -1, -2

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end

local function stands(stage, token, tenant, flavor, lease_token, digest, is_whole, has_ended, slots)
  local state, at, holder, current, batch, spec =
    unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'incarnation', 'token', 'batch', 'spec'))
  if not state then
    return recovery_left() > 0 and UNKNOWN or GONE
  end
  if at == MESH and holder == INCARNATION and current == token then
    return (state == 'claimed' or has_ended) and tonumber(batch) or GONE
  end
  if state ~= 'queued' or at ~= MESH or recovery_left() == 0 or not is_whole then
    return GONE
  end
  if tonumber(token) >= tonumber(EPOCH) or redis.sha1hex(spec) ~= digest then
    return GONE
  end
  if has_ended then
    make_claim(stage, token, nil, {}, 0, field_of(tenant, flavor), '0')
    return 0
  end
  local why, lease, amounts = why_unpaid(stage, tenant, flavor, lease_token, slots, tonumber(ARGV[6]))
  if why then
    return GONE
  end
  make_claim(stage, token, lease, amounts, slots, field_of(tenant, flavor), lease_token)
  return 0
end

local reply = { 'OK' }
for place = 7, #ARGV, 9 do
  local stage, token, tenant, flavor, lease_token, digest, is_whole, has_ended, slots = unpack(ARGV, place, place + 8)
  reply[#reply + 1] = stands(stage, token, tenant, flavor, lease_token, digest, is_whole == '1', has_ended == '1', tonumber(slots))
end
return reply
