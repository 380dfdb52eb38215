-- needs: caller, lease, stage, wall
-- Creation of a claim by the caller's session: the check of its lease, and its writes.

-- Return why a lease does not pay for a queued stage, 'NO_LEASE' or 'MANY'; else nil, the lease or nil, and the units of a slot.
-- `times`: most multiple of the lease's held amounts that may be claimed.
local function why_unpaid(stage, tenant, flavor, lease_token, times)
  local slot = cjson.decode(redis.call('HGET', STAGE .. stage, 'head')).slot
  local is_paid, lease = lease_token ~= '0' or not next(slot), nil
  if lease_token ~= '0' then
    lease = lease_of(MESH, tenant, flavor)
    is_paid = text(lease.token) == lease_token
  end
  if not is_paid then
    return 'NO_LEASE'
  end
  for resource, units in pairs(lease and slot or {}) do
    local taken = tonumber(redis.call('HGET', TAKEN .. MESH, field_of(tenant, flavor) .. '|' .. resource) or '0')
    if taken + units > times * (lease.held[resource] or 0) then
      return 'MANY'
    end
  end
  return nil, lease, slot
end

-- Give the queued stage to the session, under this token, without accepted batches.
local function make_claim(stage, token, lease, slot, lease_field, lease_token)
  local now = text(wall_ms())
  local member, deadline = unpack(redis.call('HMGET', STAGE .. stage, 'member', 'deadline'))
  redis.call('HSET', STAGE .. stage, 'state', 'claimed', 'incarnation', INCARNATION, 'token', token, 'batch', '0',
    'lease', lease_field, 'lease_token', lease_token, 'since', now)
  if lease then
    for resource, units in pairs(slot) do
      slot[resource] = text(units)
    end
    redis.call('HSET', STAGE .. stage, 'takes', cjson.encode(slot))
    count_taken(MESH, lease_field, slot, 1)
  end
  if deadline and deadline ~= '' then
    redis.call('ZADD', OVERDUE, text(LT + tonumber(deadline)), stage)
  end
  redis.call('ZREM', READY .. MESH, member)
  redis.call('ZADD', CLAIMED .. MESH, now, stage)
end
