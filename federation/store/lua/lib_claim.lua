-- needs: caller, lease, stage, wall, queue
-- Creation of a claim by the caller's session: the check of its lease, and its writes.

-- Return why a lease does not pay for so many slots of a queued stage, 'NO_LEASE' or 'MANY'; else nil, the lease or nil, and the units
-- of these slots. `times`: most multiple of the lease's held amounts that may be claimed.
local function why_unpaid(stage, tenant, flavor, lease_token, slots, times)
  local slot = cjson.decode(redis.call('HGET', STAGE .. stage, 'head')).slot
  local is_paid, lease, amounts = lease_token ~= '0' or not next(slot), nil, {}
  if lease_token ~= '0' then
    lease = lease_of(MESH, tenant, flavor)
    is_paid = text(lease.token) == lease_token
  end
  if not is_paid then
    return 'NO_LEASE'
  end
  for resource, units in pairs(lease and slot or {}) do
    local taken = tonumber(redis.call('HGET', TAKEN .. MESH, field_of(tenant, flavor) .. '|' .. resource) or '0')
    amounts[resource] = slots * units
    if taken + amounts[resource] > times * (lease.held[resource] or 0) then
      return 'MANY'
    end
  end
  return nil, lease, amounts
end

-- Give the queued stage with so many slots to the session, under this token, without accepted batches.
local function make_claim(stage, token, lease, amounts, slots, lease_field, lease_token)
  local now = text(wall_ms())
  local deadline, created, head = unpack(redis.call('HMGET', STAGE .. stage, 'deadline', 'created', 'head'))
  redis.call('HSET', STAGE .. stage, 'state', 'claimed', 'incarnation', INCARNATION, 'token', token, 'batch', '0',
    'lease', lease_field, 'lease_token', lease_token, 'since', now)
  if lease then
    local offer = cjson.decode(head)
    local submitted = (offer.created_ms or 0) > 0 and text(offer.created_ms) or created
    local row = { '0', token, now, submitted, '', text(offer.priority) .. ':' .. text(slots), lease_field }
    for resource, units in pairs(amounts) do
      amounts[resource] = text(units)
      row[#row + 1], row[#row + 2] = resource, amounts[resource]
    end
    local held = cjson.encode(amounts)
    redis.call('HSET', STAGE .. stage, 'takes', held)
    redis.call('HSET', RUNNING .. MESH, stage, table.concat(row, '|'))
    count_taken(MESH, lease_field, amounts, 1)
    note_use(stage, lease_field, held, true)
  end
  if deadline and deadline ~= '' then
    redis.call('ZADD', OVERDUE, text(LT + tonumber(deadline)), stage)
  end
  leave_queue(stage, MESH)
  redis.call('ZADD', CLAIMED .. MESH, now, stage)
end
