-- needs: caller, lease
-- Add whole slots to leases: as many as the tree allows, at most as many as wanted.
--
-- The script grants what the nominal quotas, borrowing and lending limits of all ancestors allow, except capacity that a plan
-- has reserved for other leases. It grants n slots, where n is the least number that any resource allows. The caller names the
-- version of the lease that it has seen. If this version is old, the script replies with the lease and grants nothing, so a repeated
-- call grants once. Ungranted slots are recorded as demands, see lib_lease.
--
-- The script grants own quota and what a plan has promised, whoever else waits. Beyond that the tenant would borrow: the script lends only
-- while no other tenant wants quota of the flavor, and otherwise leaves the choice to the planner: it notifies the coordinator, once in
-- CONTESTED_MS, which waits for as long and plans. Another tenant wants quota if it has a recorded demand on any mesh, or asks in the same
-- call for more than its own. Tenants of other trees count as well, since finding the root of a recorded tenant takes a walk. That is
-- harmless: they have no claim on the quota, so the planner grants it. Source: ADR 0036.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   lines 'tenant|flavor|slots|priority, for gangs ':' and the number of bundles|priority of all that the lease pays for then|version seen of the lease|ms that it has waited,
--           -1 when unknown, -2 for work that runs and would grow, which is not recorded as a want|ms since the epoch of its submission' and for each resource, by name, '|resource|units of a slot', each with its newline; where the lease lacks only a
--           part of a slot, the part, '|' and the whole slot
-- Reply     {'OK', epoch, ms of recovery, mark, '1' when others wait for quota, leases, answers}, leases as in lib_lease; answers are lines
--             'GRANTED|slots' | 'CHANGED': read the lease first | 'UNKNOWN_TENANT'
--             'REFUSED|reason|short resource|units of it for one slot|units of it available'
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end

local asked = {}
for field, tenant, flavor, slots, priority, pays_for, version, waited, created, slot in
  string.gmatch(ARGV[6], '(([^|\n]+)|([^|\n]+))|(%d+)|([-:%d]+)|(-?%d+)|(%d+)|(-?%d+)|(%d+)([^\n]*)\n') do
  asked[#asked + 1] = { field = field, tenant = tenant, flavor = flavor, slots = tonumber(slots), priority = priority, slot = slot,
    pays_for = tonumber(pays_for), version = tonumber(version), waited = tonumber(waited), created = tonumber(created), shape = shape_of(slot),
    grows = waited == '-2' }
end

local recovering = recovery_left() > 0

-- Return the tenants that would borrow in this call, by flavor.
local function borrowers_of(demands)
  local borrowers = {}
  for place = 1, #demands do
    local demand, resources = demands[place], demands[place].shape.resources
    local lease, node = LEASE_ROWS[MESH][demand.field], NODES[demand.field]
    for at = 1, IS_CONFIGURED[demand.tenant] and not demand.grows and #resources or 0 do
      local resource = resources[at]
      local promised = max(0, (lease.target[resource] or 0) - (lease.held[resource] or 0))
      if demand.slots * demand.shape.units[resource] > promised + own_left(node, resource) then
        local tenants = borrowers[demand.flavor] or {}
        borrowers[demand.flavor], tenants[demand.tenant] = tenants, true
      end
    end
  end
  return borrowers
end

local CONTESTED_MS = 100 -- As in `federation.leases`.
local BORROWERS, DEMANDED_BY_OTHERS = {}, {}
local function is_contested(demand)
  for tenant in pairs(BORROWERS[demand.flavor] or {}) do
    if tenant ~= demand.tenant then
      return true
    end
  end
  local field = demand.field
  if DEMANDED_BY_OTHERS[field] == nil then
    DEMANDED_BY_OTHERS[field] = others_want(demand.flavor, field)
  end
  return DEMANDED_BY_OTHERS[field]
end

-- Return the whole slots that may be granted, or the refusal; and the slots that are free.
local function fitting(lease, demand)
  local slots, owned, short, contested, never = demand.slots, demand.slots, nil, nil, nil
  local node = NODES[lease.field]
  local resources, shape_units = demand.shape.resources, demand.shape.units
  for place = 1, #resources do
    local resource = resources[place]
    local units = shape_units[resource]
    local held, target = lease.held[resource] or 0, lease.target[resource] or 0
    local to_hold, to_aim = rooms_of(node, resource)
    local free = max(0, to_hold)
    local promised = max(0, target - held)
    local available = held > target and 0 or min(free, promised + max(0, to_aim))
    local fits = floor(available / units) -- Exact: below 2^53 no quotient is rounded up to the next whole number.
    if owned > 0 then
      local own = min(available, promised + own_left(node, resource))
      owned = min(owned, floor(own / units))
      if owned == 0 then
        contested = 'REFUSED|QUOTA_CONTESTED|' .. resource .. '|' .. text(units) .. '|' .. text(own)
      end
    end
    if fits < slots then
      slots = fits
    end
    if fits == 0 then
      local amounts = '|' .. resource .. '|' .. text(units) .. '|' .. text(available)
      short = short or 'REFUSED|QUOTA_EXHAUSTED' .. amounts
      if not never and potential_of(node, resource) < units then
        never = 'REFUSED|' .. (is_open(node) and 'QUOTA_TOO_SMALL' or 'FLAVOR_CLOSED') .. amounts
      end
    end
  end
  if slots > owned and is_contested(demand) then
    return owned, contested, nil, slots
  end
  return slots, never or short, never, slots
end

-- By index of the demand: slots that it waits for, slots that were granted, whether other meshes have to return quota for it.
local unmet, granted, lacks = {}, {}, {}
local has_contest = false
local function answer(demand, at)
  if recovering then
    return 'REFUSED|LEDGER_RECOVERING||0|0'
  elseif not IS_CONFIGURED[demand.tenant] then
    return 'UNKNOWN_TENANT'
  end
  local lease = LEASE_ROWS[MESH][demand.field]
  if lease.version ~= demand.version then
    return 'CHANGED'
  end
  local fits, refused, never, free = fitting(lease, demand)
  lacks[at] = free < demand.slots
  has_contest = has_contest or (fits < free and not demand.grows)
  if refused then
    if not never then
      unmet[at] = demand.slots
    end
    return refused
  end
  local resources, units = demand.shape.resources, demand.shape.units
  for place = 1, #resources do
    local resource = resources[place]
    local held = (lease.held[resource] or 0) + fits * units[resource]
    set_amounts(lease, resource, held, max(held, lease.target[resource] or 0))
  end
  lease.priority = demand.pays_for
  note_change(lease, 'grant')
  granted[at] = fits
  if fits < demand.slots then
    unmet[at] = demand.slots - fits
  end
  return 'GRANTED|' .. text(fits)
end

local answers = {}
read_leases(MESH, asked)
if #asked > 1 and not recovering then
  BORROWERS = borrowers_of(asked)
end
for place = 1, #asked do
  local demand = asked[place]
  answers[place] = answer(demand, place)
end

keep_leases()
local is_change = false
local had_demands = redis.call('SISMEMBER', DEMANDING, MESH) == 1
for place, demand in ipairs(asked) do
  if not demand.grows and (unmet[place] or (had_demands and granted[place])) then
    local field = demand.field .. '|' .. demand.priority .. demand.slot
    local is_new = settle_demand(MESH, field, granted[place] or 0, unmet[place] or 0, demand.waited, demand.created)
    is_change = is_change or (is_new and lacks[place])
  end
end
if is_change then
  ask_others(MESH)
end
if has_contest and LT - tonumber(redis.call('HGET', PLAN, 'contested') or -CONTESTED_MS) >= CONTESTED_MS then
  redis.call('HSET', PLAN, 'contested', text(LT))
  post_inbox('', 'contested', '')
end
local response = response_since(MESH, SEEN)
response[#response + 1] = table.concat(answers, '\n')
return response
