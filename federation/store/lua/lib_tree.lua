-- needs: keys, clock
-- The quota arithmetic of `federation/tenants.py`, on the rows of TREE; every call walks once from a tenant to its root.
--
-- Rows of TREE:
--   tenant|<path>                       the tenant as JSON, for readers; only tenants of the present configuration have it
--   parent|<path>                       its parent's path, '' for a root; also for tenants that vanished while charged
--   quota|<path>|<flavor>|<resource>    '<own> <kept> <borrowing limit or ->', counted when the tree was configured
--   use|<path>|<flavor>|<resource>      bubbled use in units; absent when 0

local function row(kind, tenant, flavor, resource)
  return kind .. '|' .. tenant .. '|' .. flavor .. '|' .. resource
end

-- Own quota, kept quota, borrowing limit (nil: none). A resource without a row has nominal 0.
local function quota_of(tenant, flavor, resource)
  local packed = redis.call('HGET', TREE, row('quota', tenant, flavor, resource))
  if not packed then
    return 0, 0, nil
  end
  local own, kept, borrowing_limit = string.match(packed, '^(%d+) (%d+) (%S+)$')
  return tonumber(own), tonumber(kept), tonumber(borrowing_limit)
end

local function use_of(tenant, flavor, resource)
  return tonumber(redis.call('HGET', TREE, row('use', tenant, flavor, resource)) or '0')
end

-- The tenant, its parent, … its root.
local function way_up(tenant)
  local way = {}
  while tenant and tenant ~= '' do
    way[#way + 1] = tenant
    tenant = redis.call('HGET', TREE, 'parent|' .. tenant)
  end
  return way
end

-- What the first tenant of `way` could be granted now, and what it could hold in an empty tree.
local function room_of(way, flavor, resource)
  local root = way[#way]
  local own, kept, borrowing_limit = quota_of(root, flavor, resource)
  local available, potential = own - use_of(root, flavor, resource), own
  for place = #way - 1, 1, -1 do
    local tenant = way[place]
    own, kept, borrowing_limit = quota_of(tenant, flavor, resource)
    local use = use_of(tenant, flavor, resource)
    potential = kept + potential
    if borrowing_limit then
      available = math.min(available, (own - kept) - math.max(0, use - kept) + borrowing_limit)
      potential = math.min(potential, own + borrowing_limit)
    end
    available = math.max(0, kept - use) + available
  end
  return available, potential
end

-- Add `by` units to the first tenant of `way`, and to those above what exceeds the kept parts.
local function charge(way, flavor, resource, by)
  for _, tenant in ipairs(way) do
    if by == 0 then
      return
    end
    local before = use_of(tenant, flavor, resource)
    local after = before + by
    if after == 0 then
      redis.call('HDEL', TREE, row('use', tenant, flavor, resource))
    else
      redis.call('HSET', TREE, row('use', tenant, flavor, resource), text(after))
    end
    local _, kept = quota_of(tenant, flavor, resource)
    by = math.max(0, after - kept) - math.max(0, before - kept)
  end
end

-- Charge a decoded lease to its tenant, or (sign -1) give it back.
local function charge_lease(lease, sign)
  local way = way_up(lease.tenant)
  for resource, units in pairs(lease.slot) do
    charge(way, lease.flavor, resource, sign * tonumber(units) * tonumber(lease.slots))
  end
end
