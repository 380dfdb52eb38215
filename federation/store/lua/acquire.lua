-- needs: caller, lease
-- Add whole slots to leases: as many as the tree allows, at most as many as wanted.
--
-- The script grants what the nominal quotas, borrowing and lending limits of all ancestors allow, except capacity that a plan
-- has reserved for other leases. It grants n slots, where n is the least number that any resource allows. The caller names the
-- version of the lease that it has seen. If this version is old, the script replies with the lease and grants nothing, so a repeated
-- call grants once. Ungranted slots are recorded as wants, see lib_lease.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   lines 'tenant|flavor|slots|priority|priority of all that the lease pays for then|version seen of the lease|ms that it has waited
--           or -1' and for each resource, by name, '|resource|units of a slot', each with its newline
-- Reply     {'OK', epoch, ms of recovery, mark, '1' when others wait for quota, leases, answers}, leases as in lib_lease; answers are lines
--             'GRANTED|slots' | 'CHANGED': read the lease first | 'UNKNOWN_TENANT'
--             'REFUSED|reason|short resource|units of it for one slot|units of it available'
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end

local asked = {}
for field, tenant, flavor, slots, priority, pays_for, version, waited, slot in
  string.gmatch(ARGV[6], '(([^|\n]+)|([^|\n]+))|(%d+)|(-?%d+)|(-?%d+)|(%d+)|(-?%d+)([^\n]*)\n') do
  asked[#asked + 1] = { field = field, tenant = tenant, flavor = flavor, slots = tonumber(slots), priority = priority, slot = slot,
    pays_for = tonumber(pays_for), version = tonumber(version), waited = tonumber(waited), shape = shape_of(slot) }
end

local recovering = recovery_left() > 0

-- Return the whole slots that fit, or the refusal.
local function fitting(lease, demand)
  local slots, short, never = demand.slots, nil, nil
  local node = NODES[lease.field]
  local resources, shape_units = demand.shape.resources, demand.shape.units
  for place = 1, #resources do
    local resource = resources[place]
    local units = shape_units[resource]
    local held, target = lease.held[resource] or 0, lease.target[resource] or 0
    local to_hold, to_aim = rooms_of(node, resource)
    local free = max(0, to_hold)
    local unplanned = max(0, target - held) + max(0, to_aim)
    local available = held > target and 0 or min(free, unplanned)
    local fits = floor(available / units) -- Exact: below 2^53 no quotient is rounded up to the next whole number.
    if fits < slots then
      slots = fits
    end
    if fits == 0 then
      local amounts = '|' .. resource .. '|' .. text(units) .. '|' .. text(available)
      short = short or 'REFUSED|QUOTA_EXHAUSTED' .. amounts
      if not never and potential_of(node, resource) < units then
        never = 'REFUSED|QUOTA_TOO_SMALL' .. amounts
      end
    end
  end
  return slots, never or short, never
end

local unmet, granted = {}, {} -- By index of the want: slots that it waits for, and slots that were granted.
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
  local fits, refused, never = fitting(lease, demand)
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
for place = 1, #asked do
  local demand = asked[place]
  answers[place] = answer(demand, place)
end

keep_leases()
local is_change = false
local has_wanted = redis.call('SISMEMBER', WANTING, MESH) == 1
for place, demand in ipairs(asked) do
  if unmet[place] or (has_wanted and granted[place]) then
    local field = demand.field .. '|' .. demand.priority .. demand.slot
    is_change = settle_demand(MESH, field, granted[place] or 0, unmet[place] or 0, demand.waited) or is_change
  end
end
if is_change then
  ask_others(MESH)
end
local response = response_since(MESH, SEEN)
response[#response + 1] = table.concat(answers, '\n')
return response
