-- needs: keys, text, clock, session, tree, post, queue
-- Leases: one row per tenant and flavor in the hash LEASES of their holder. The holder is a mesh, or `<mesh>~<incarnation>` for
-- leases that an earlier session of the mesh held when the next one began. A row is
--
--   '<token>|<version>|<priority>|<cut>[,<victim>…]' and then for each resource '|<resource>|<held>|<target>'
--
-- `token` fences: a new row and a revoke with `hard` get a new one. `version` is new with each change, except those that the mesh
-- made itself in this very form. A mesh that returns amounts or acknowledges a target names the version that it has seen, and
-- is ignored when that version is old. Both are drawn from one counter, so neither ever repeats. `cut` is the LT until which the
-- mesh may use amounts above the target, 0 when there are none. Victims are claim tokens of stages that plans stop: see `unite`. MARKS has the version of the last change of each mesh: a mesh
-- with this mark knows everything. The mark outlives the mesh's session: a missing row that was changed no later than the mark was
-- returned. Changes during a recovery prove nothing about lost writes, so `<mesh>|lost` keeps the mark of before:
-- '<recovery_since>|<mark>'.
--
-- Rows are changed in Lua and written once, in `keep_leases`.

local LEASE_ROWS, LEASE_ORDER = {}, {}
local LOG_ROWS = 5 -- Changes per log entry: one entry per change cost a tenth of a large call's time, one per call had no bound.
local NEW_MARKS = {} -- Of holders whose leases the script has changed.

local function field_of(tenant, flavor)
  return tenant .. '|' .. flavor
end

-- A table with 0 for each. Lua allocates a constructor's fields at once, but reallocates with every second later entry.
local function zeros(resources)
  local first, second, third = unpack(resources)
  if third or not second then
    local made = {}
    for place = 1, #resources do
      made[resources[place]] = 0
    end
    return made
  end
  return { [first] = 0, [second] = 0 }
end

-- Return the row as a table; a missing row holds nothing, or 0 of the resources of a shape, and has version 0.
local function lease_from(holder, tenant, flavor, field, packed, shape)
  local lease = { holder = holder, tenant = tenant, flavor = flavor, field = field, token = 0, version = 0,
    priority = 0, cut = 0, had_cut = false, victims = '', resources = nil, held = nil, target = nil }
  if not packed and shape then
    lease.resources, lease.held, lease.target = { unpack(shape.resources) }, zeros(shape.resources), zeros(shape.resources)
  else
    lease.resources, lease.held, lease.target = {}, {}, {}
  end
  if packed then
    local token, version, priority, cut, victims, amounts = string.match(packed, '^(%d+)|(%d+)|(-?%d+)|(%d+)([,%d]*)|?(.*)$')
    lease.token, lease.version, lease.priority, lease.cut = tonumber(token), tonumber(version), tonumber(priority), tonumber(cut)
    lease.had_cut, lease.victims = lease.cut > 0, victims
    local parts, resources = parsed(amounts), lease.resources
    for place = 1, #parts, 3 do
      local resource = parts[place]
      resources[#resources + 1] = resource
      lease.held[resource], lease.target[resource] = parts[place + 1], parts[place + 2]
    end
  end
  local rows = LEASE_ROWS[holder]
  if not rows then
    rows = {}
    LEASE_ROWS[holder] = rows
  end
  rows[field] = lease
  LEASE_ORDER[#LEASE_ORDER + 1] = lease
  return lease
end

local function lease_of(holder, tenant, flavor)
  local field = field_of(tenant, flavor)
  local known = LEASE_ROWS[holder] and LEASE_ROWS[holder][field]
  return known or lease_from(holder, tenant, flavor, field, redis.call('HGET', LEASES .. holder, field))
end

-- Return all rows of a holder, ordered by tenant and flavor.
local function leases_of(holder)
  local flat, fields, packed = redis.call('HGETALL', LEASES .. holder), {}, {}
  for place = 1, #flat, 2 do
    fields[#fields + 1] = flat[place]
    packed[flat[place]] = flat[place + 1]
  end
  table.sort(fields)
  local leases = {}
  for _, field in ipairs(fields) do
    local tenant, flavor = string.match(field, '^(.+)|([^|]+)$')
    local known = LEASE_ROWS[holder] and LEASE_ROWS[holder][field]
    leases[#leases + 1] = known or lease_from(holder, tenant, flavor, field, packed[field])
  end
  return leases
end

local function packed_lease(lease)
  local version = format_number('%d', lease.version) -- A version never repeats, so it is not cached.
  local token = lease.token == lease.version and version or format_number('%d', lease.token)
  local packed = token .. '|' .. version .. '|' .. text(lease.priority) .. '|' .. text(lease.cut) .. lease.victims
  local held, target, resources = lease.held, lease.target, lease.resources
  for place = 1, #resources do
    local resource = resources[place]
    packed = packed .. '|' .. resource .. '|' .. text(held[resource]) .. '|' .. text(target[resource])
  end
  return packed
end

local function is_empty(lease)
  local resources = lease.resources
  for place = 1, #resources do
    local resource = resources[place]
    if lease.held[resource] > 0 or lease.target[resource] > 0 then
      return false
    end
  end
  return true
end

local function shrinks(lease)
  for _, resource in ipairs(lease.resources) do
    if lease.held[resource] > lease.target[resource] then
      return true
    end
  end
  return false
end

local function grows(lease)
  for _, resource in ipairs(lease.resources) do
    if lease.target[resource] > lease.held[resource] then
      return true
    end
  end
  return false
end

-- Note that the lease need not shrink any more, so its victims run on.
local function end_shrinking(lease)
  if lease.cut > 0 then
    lease.cut, lease.victims = 0, ''
  end
end

-- Set the deadline for amounts above the target; a running deadline is never extended.
local function shrink_by(lease, latest)
  if shrinks(lease) then
    lease.cut = min(lease.cut > 0 and lease.cut or latest, latest)
  else
    end_shrinking(lease)
  end
end

-- Return both lists of victims (',<token>…') as one, without repeats: the last VICTIMS_MAX, since the first have most likely ended.
local VICTIMS_MAX = 200
local function unite(victims, more)
  local known, tokens = {}, {}
  for token in string.gmatch(victims .. more, '%d+') do
    if not known[token] then
      known[token] = true
      tokens[#tokens + 1] = token
    end
  end
  return #tokens > 0 and ',' .. table.concat(tokens, ',', max(1, #tokens - VICTIMS_MAX + 1)) or ''
end

-- Set held and target of a lease for one resource; both sums of the tree follow.
local function set_amounts(lease, resource, held, target)
  local had, targeted = lease.held[resource], lease.target[resource]
  if not had then
    lease.resources[#lease.resources + 1] = resource
    had, targeted = 0, 0
  end
  lease.held[resource], lease.target[resource] = held, target
  charge(NODES[lease.field] or node_of(lease), resource, held - had, target - targeted)
end

-- Give a changed lease a new version, and a new row a new token.
local function note_change(lease, verb)
  lease.version = next_token()
  if lease.token == 0 then
    lease.token = lease.version
  end
  lease.changed = lease.changed and lease.changed .. ',' .. verb or verb
end

-- Return the mark of a mesh at the start of the recovery, or the present one: nothing up to it can have been lost.
local function mark_before_loss(mesh)
  local since = redis.call('HGET', META, 'recovery_since') or '0'
  local kept, mark = string.match(redis.call('HGET', MARKS, mesh .. '|lost') or '', '^(%d+)|(%d+)$')
  if kept ~= since then
    mark = redis.call('HGET', MARKS, mesh) or '0'
    redis.call('HSET', MARKS, mesh .. '|lost', since .. '|' .. mark)
  end
  return tonumber(mark)
end

-- Write changed leases, the tree and the last token; log each change.
local function keep_leases()
  local gone, changed, marks, response = {}, {}, {}, {}
  keep_tree()
  for place = 1, #LEASE_ORDER do
    local lease = LEASE_ORDER[place]
    if lease.changed then
      local holder, field, packed = lease.holder, lease.field, packed_lease(lease)
      lease.packed = packed
      local is_kept = not is_empty(lease)
      local side = is_kept and changed or gone
      local list = side[holder] or {}
      side[holder] = list
      list[#list + 1] = field
      if is_kept then
        list[#list + 1] = packed
      end
      if lease.version > (marks[holder] or 0) then
        marks[holder] = lease.version
      end
      if lease.cut > 0 and is_kept then
        redis.call('ZADD', CUTS, text(lease.cut + rare('grace_ms')), holder .. '|' .. field)
      elseif lease.had_cut then
        redis.call('ZREM', CUTS, holder .. '|' .. field)
      end
      response[#response + 1] = lease.changed .. '|' .. holder .. '|' .. field .. '|' .. packed
      lease.changed, lease.is_noted, lease.had_cut = nil, nil, lease.cut > 0
    elseif lease.is_noted then -- The mesh changed it itself: neither reported nor logged.
      lease.packed, lease.is_noted = packed_lease(lease), nil
      local list = changed[lease.holder] or {}
      changed[lease.holder] = list
      list[#list + 1], list[#list + 2] = lease.field, lease.packed
    end
  end
  for first = 1, #response, LOG_ROWS do -- Entries have a few lines 'verb|holder|tenant|flavor|row', so the log is bounded by entries.
    local lines = table.concat(response, '\n', first, min(#response, first + LOG_ROWS - 1))
    redis.call('XADD', LOG, 'MAXLEN', '~', '100000', '*', 'changes', lines)
  end
  for holder, fields in pairs(gone) do
    in_pieces('HDEL', LEASES .. holder, fields)
  end
  for holder, pairs_of in pairs(changed) do
    in_pieces('HSET', LEASES .. holder, pairs_of)
  end
  for holder, mark in pairs(marks) do
    if recovery_left() > 0 then
      mark_before_loss(holder)
    end
    redis.call('HSET', MARKS, holder, text(mark))
    NEW_MARKS[holder] = mark
  end
  keep_token()
end

-- Return all changes of the mesh's leases after `seen`, each a line 'tenant|flavor|ms until the deadline or nothing|row', in no
-- order; and the mark.
local function response_since(mesh, seen)
  local mark = NEW_MARKS[mesh] or MARK_BEFORE or tonumber(redis.call('HGET', MARKS, mesh) or '0')
  local lines = {}
  if seen ~= mark then -- A mesh that had seen all when the script began still needs the changes of the script itself.
    local leases = seen == MARK_BEFORE and LEASE_ORDER or leases_of(mesh)
    for place = 1, #leases do
      local lease = leases[place]
      if lease.holder == mesh and lease.version > seen and not is_empty(lease) then
        local left = lease.cut > 0 and text(math.max(0, lease.cut - LT)) or ''
        lines[#lines + 1] = lease.field .. '|' .. left .. '|' .. (lease.packed or packed_lease(lease))
      end
    end
  end
  return { 'OK', EPOCH, text(recovery_left()), text(mark), others_wait(mesh), table.concat(lines, '\n') }
end

-- ---- leases named by calls: one line each, all read at once

-- The amounts of a shape '<resource>|<units>|…' and its resources by name, without repeats; a call has few shapes, most of them often.
-- A shape ends at '||'.
local SHAPES = {}
local function shape_of(packed)
  local shape = SHAPES[packed]
  if not shape then
    shape = { resources = {}, units = {} }
    local last = string.find(packed, '||', 1, true)
    for resource, units in string.gmatch(string.sub(packed, 1, (last or 0) - 1), '([^|]+)|(%d+)') do
      if not shape.units[resource] then -- A repeated resource would be charged twice.
        shape.resources[#shape.resources + 1] = resource
        shape.units[resource] = tonumber(units)
      end
    end
    SHAPES[packed] = shape
  end
  return shape
end

-- Read the named leases ({tenant = …, flavor = …, field = …, shape = …}, …), with all nodes that they are charged to.
local function read_leases(holder, named)
  local fields = {}
  for place = 1, #named do
    fields[place] = named[place].field
  end
  local packed = many(LEASES .. holder, fields)
  for place = 1, #named do
    local one = named[place]
    if not (LEASE_ROWS[holder] and LEASE_ROWS[holder][one.field]) then
      lease_from(holder, one.tenant, one.flavor, one.field, packed[place], one.shape)
    end
  end
  read_ahead(named)
end

-- ---- demands: slots that a mesh could use and was not granted

-- DEMANDS has a row for each lease, priority and slot size of the demand of a mesh. The field is 'tenant|flavor|priority', for gangs ':'
-- and the number of bundles, and for each resource of a slot, by name, '|resource|units'; where this is what the lease lacks of a slot, then '|' and the whole slot. The value is
-- '<slots>|<LT since when>|<slots beyond what the mesh could hold>|<when the oldest work was submitted>'. A heartbeat with demands replaces all rows; grants and growth of leases
-- reduce them, and so do stages that leave the queue, see lib_queue. The mesh reports its wait, from which LT follows to the second.
--
-- DEMAND_COUNTS has for each 'tenant|flavor' the number of its rows, over all meshes, and for each flavor the number of tenants with
-- rows; no field when there are none. So `others_want` reads two fields, however many demands there are.
local DEMANDS_MAX, SAME_MS = 1000, 1000

local function demand_of_row(packed)
  local slots, since, beyond, created = string.match(packed, '^(%d+)|(-?%d+)|(%d+)|(%d+)$')
  return { slots = tonumber(slots), since = tonumber(since), beyond = tonumber(beyond), created = tonumber(created) }
end

local function packed_demand(slots, since, beyond, created)
  return text(slots) .. '|' .. text(since) .. '|' .. text(beyond) .. '|' .. text(created)
end

-- Return since when the demand waits, from the report (-1: none) and the record. Differences below a second are not written.
local function since_when(waited, before)
  local since = waited >= 0 and LT - waited or nil
  if before and (not since or math.abs(since - before.since) < SAME_MS) then
    return before.since
  end
  return since or LT
end

local function demands_of(mesh)
  local flat, demands = redis.call('HGETALL', DEMANDS .. mesh), {}
  for place = 1, #flat, 2 do
    demands[flat[place]] = demand_of_row(flat[place + 1])
  end
  return demands
end

-- Return whether a tenant other than this lease's wants the flavor, on any mesh.
local function others_want(flavor, lease_field)
  local tenants = tonumber(redis.call('HGET', DEMAND_COUNTS, flavor) or '0')
  return tenants > 1 or (tenants == 1 and redis.call('HEXISTS', DEMAND_COUNTS, lease_field) == 0)
end

-- Write some rows and delete others; update whether the mesh has any demand. `added`: fields of written rows that are new.
local function keep_demands(mesh, written, gone, added)
  in_pieces('HDEL', DEMANDS .. mesh, gone)
  in_pieces('HSET', DEMANDS .. mesh, written)
  count_demands(added, gone)
  if #written > 0 then
    redis.call('SADD', DEMANDING, mesh)
  elseif #gone > 0 and redis.call('EXISTS', DEMANDS .. mesh) == 0 then
    redis.call('SREM', DEMANDING, mesh)
  end
end

-- Replace the demands of the mesh: rows [field, slots, ms waited or -1, slots beyond, ms of submission]; for a repeated field the last row counts.
local function replace_demands(mesh, response)
  local before, rows, written, gone, added = demands_of(mesh), {}, {}, {}, {}
  for _, row in ipairs(response) do
    local field, slots, waited, beyond, created = unpack(row)
    rows[field] = slots > 0 and packed_demand(slots, since_when(waited, before[field]), beyond, created) or nil
  end
  for field, packed in pairs(rows) do
    local known = before[field]
    if not known or packed ~= packed_demand(known.slots, known.since, known.beyond, known.created) then
      written[#written + 1], written[#written + 2] = field, packed
      added[#added + 1] = not known and field or nil
    end
  end
  for field in pairs(before) do
    if not rows[field] then
      gone[#gone + 1] = field
    end
  end
  keep_demands(mesh, written, gone, added)
end

-- Update demands after `acquire`: remove granted slots, record missing ones. Return true when a demand was unknown.
local function settle_demand(mesh, field, granted, missing, waited, created)
  local packed = redis.call('HGET', DEMANDS .. mesh, field)
  local before = packed and demand_of_row(packed)
  if not before and (missing == 0 or #redis.call('HKEYS', DEMANDS .. mesh) >= DEMANDS_MAX) then
    return false
  end
  local slots = max(before and before.slots - granted or 0, missing)
  local since = since_when(waited, before)
  since = before and min(since, before.since) or since -- The oldest work behind the demand counts.
  local row = slots > 0 and packed_demand(slots, since, before and before.beyond or 0, min(before and before.created or created, created))
  if not row then
    keep_demands(mesh, {}, { field }, {})
  elseif row ~= packed then
    keep_demands(mesh, { field, row }, {}, before and {} or { field })
  end
  if slots > (before and before.slots or 0) then
    bound_older_wants(mesh, field)
  end
  return not before
end

-- Remove demands that the growth of a lease has met, the most urgent first, then the oldest. Return the highest priority that
-- was met; nil when none was.
local function meet_demands(mesh, lease_field, grown)
  local demands, written, gone, most = {}, {}, {}, nil
  for field, demand in pairs(demands_of(mesh)) do
    local priority, slot = string.match(string.sub(field, #lease_field + 1), '^|(-?%d+)[:%d]*(.*)$')
    if string.sub(field, 1, #lease_field) == lease_field and priority then
      demand.field, demand.priority, demand.slot = field, tonumber(priority), slot
      demands[#demands + 1] = demand
    end
  end
  table.sort(demands, function(one, other)
    if one.priority ~= other.priority then
      return one.priority > other.priority
    elseif one.since ~= other.since then
      return one.since < other.since
    end
    return one.field < other.field
  end)
  for _, demand in ipairs(demands) do
    local shape, met = shape_of(demand.slot), demand.slots
    for _, resource in ipairs(shape.resources) do
      met = min(met, floor((grown[resource] or 0) / shape.units[resource]))
    end
    if met > 0 then
      most = most or demand.priority
      for _, resource in ipairs(shape.resources) do
        grown[resource] = grown[resource] - met * shape.units[resource]
      end
      if met < demand.slots then
        written[#written + 1], written[#written + 2] = demand.field, packed_demand(demand.slots - met, demand.since, demand.beyond, demand.created)
      else
        gone[#gone + 1] = demand.field
      end
    end
  end
  keep_demands(mesh, written, gone, {})
  return most
end

local function drop_demands(mesh)
  keep_demands(mesh, {}, redis.call('HKEYS', DEMANDS .. mesh), {})
end

-- Ask other meshes for idle leases that a mesh demands.
local function ask_others(mesh)
  for _, other in ipairs(redis.call('HKEYS', SESSIONS)) do
    if other ~= mesh and redis.call('EXISTS', LEASES .. other) == 1 then
      post_mail(other, 'lease', '')
    end
  end
end

-- Notify meshes with a demand for a flavor of which something was returned: a few of them, beginning with another one each time. The others
-- learn of it with their next heartbeat. If thousands asked at once, they would get no more, and the ledger would be busy.
local WAKES_MAX, WAKE_LOOKS_MAX = 8, 64
local function wake_wanting()
  local freed, woken = {}, 0
  for _, lease in ipairs(LEASE_ORDER) do
    freed[lease.flavor] = true
  end
  local meshes = redis.call('SMEMBERS', DEMANDING)
  for place = 1, min(#meshes, WAKE_LOOKS_MAX) do
    local mesh = meshes[(NOW_US + place) % #meshes + 1]
    for _, field in ipairs(woken < WAKES_MAX and redis.call('HKEYS', DEMANDS .. mesh) or {}) do
      if freed[string.match(field, '^[^|]+|([^|]+)')] then
        post_mail(mesh, 'stage', '')
        woken = woken + 1
        break
      end
    end
  end
end
