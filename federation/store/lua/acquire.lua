-- needs: caller
-- Add whole slots to leases: as many as the tree allows, at most as many as wanted.
--
-- Inside its own quota and by borrowing alike, the script grants what nominal, borrowing and lending limits of all
-- ancestors leave, but nothing that a plan has set aside for somebody. n slots are granted where n is the least that any
-- resource allows. Who asks names the version that it has seen of the lease: another one is told instead of granted
-- upon, so a question that is carried out twice grants once. What was not granted is noted as wanted.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   list of [tenant, flavor, {resource: units of a slot}, slots, priority, version seen of the lease], JSON
-- Reply     {'OK', epoch, ms of learning, mark, '1' when others wait for quota, leases, answers}, each answer
--             {'GRANTED', slots} | {'CHANGED'}: look at the lease first | {'UNKNOWN_TENANT'}
--             {'REFUSED', reason, resource that is short, units of it for one slot, units of it available}
--           as in lib_caller; {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local lost = why_lost(SESSION, INCARNATION, true)
if lost then
  return { lost }
end

local asked, starts = cjson.decode(ARGV[6]), {}
for _, want in ipairs(asked) do
  local resources = {}
  for resource in pairs(want[3]) do
    resources[#resources + 1] = resource
  end
  table.sort(resources)
  want.resources = resources
  starts[#starts + 1] = { want[1], want[2], resources }
end

-- Whole slots that fit, or nil and the refusal.
local function fitting(lease, want)
  local slots, short, never = want[4], nil, nil
  for _, resource in ipairs(want.resources) do
    local units = want[3][resource]
    local way = way_of(lease.tenant, lease.flavor, resource)
    local held, target = lease.held[resource] or 0, lease.target[resource] or 0
    local free = math.max(0, room_of(way, 'held'))
    local unplanned = math.max(0, target - held) + math.max(0, room_of(way, 'target'))
    local available = held > target and 0 or math.min(free, unplanned)
    local fits = math.floor(available / units) -- Exact: below 2^53 no quotient is rounded up to the next whole number.
    slots = math.min(slots, fits)
    if fits == 0 then
      short = short or { 'REFUSED', 'QUOTA_EXHAUSTED', resource, text(units), text(available) }
      if not never and potential_of(way) < units then
        never = { 'REFUSED', 'QUOTA_TOO_SMALL', resource, text(units), text(available) }
      end
    end
  end
  return slots, never or short
end

local function answer(want)
  local tenant, flavor, slot, slots, priority, version = unpack(want)
  if learn_left() > 0 then
    return { 'REFUSED', 'LEDGER_LEARNING', '', '0', '0' }
  elseif want.is_known == false then
    return { 'UNKNOWN_TENANT' }
  end
  local lease = lease_of(MESH, tenant, flavor)
  if lease.version ~= version then
    return { 'CHANGED' }
  end
  local fits, refused = fitting(lease, want)
  if refused then
    want.wanted = refused[2] == 'QUOTA_EXHAUSTED' and slots or nil
    return refused
  end
  for _, resource in ipairs(want.resources) do
    local held = (lease.held[resource] or 0) + fits * slot[resource]
    set_amounts(lease, resource, held, math.max(held, lease.target[resource] or 0))
  end
  lease.priority = priority
  note_change(lease, 'grant')
  want.wanted = fits < slots and slots - fits or nil
  return { 'GRANTED', text(fits) }
end

local answers, names, rows = {}, {}, {}
for place, want in ipairs(asked) do
  names[place], rows[place] = 'tenant|' .. want[1], field_of(want[1], want[2])
end
read_ahead(starts)
local known, packed = many(TREE, names), many(LEASES .. MESH, rows)
for place, want in ipairs(asked) do
  want.is_known = known[place] and true or false
  if not (LEASE_ROWS[MESH] and LEASE_ROWS[MESH][rows[place]]) then
    lease_from(MESH, want[1], want[2], packed[place])
  end
end
for place, want in ipairs(asked) do
  answers[place] = answer(want)
end

keep_leases()
local is_news = false
local wanted_before = many(WANTS .. MESH, rows)
for place, want in ipairs(asked) do
  if want.wanted then
    is_news = note_want(MESH, want[1], want[2], want[3], want.wanted, want[5]) or is_news
  elseif wanted_before[place] and answers[place][1] == 'GRANTED' then
    drop_want(MESH, field_of(want[1], want[2]))
  end
end
if is_news then
  ask_others(MESH)
end
local told = told_since(MESH, SEEN)
told[#told + 1] = answers
return told
