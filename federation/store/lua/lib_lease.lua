-- needs: keys, text, clock, tree, post
-- Leases: one row per tenant and flavor in the hash LEASES of their holder, which is a mesh, or `<mesh>~<incarnation>` for
-- what an earlier session of the mesh held when the next one began. A row is
--
--   '<token>|<version>|<priority>|<cut>' and then for each resource '|<resource>|<held>|<target>'
--
-- `token` fences: it is new with each row and with a hard revoke. `version` is new with each change that the mesh did not
-- make itself in this very form: a mesh that gives something back or says that it obeys names the version that it has
-- seen, and is not heard when that is not the present one. Both are drawn from one counter, so neither ever repeats.
-- `cut` is the LT until which the mesh may use what is above the target, 0 when nothing is. MARKS has the version of the
-- last change of each mesh: a mesh that has seen it has seen everything.
--
-- Rows are changed in Lua and written once, in `keep_leases`.

local LEASE_ROWS, LEASE_ORDER = {}, {}
local MARK_BEFORE, NEW_MARKS = nil, {} -- Of the caller when the script began; of holders whose leases it has changed.

local function field_of(tenant, flavor)
  return tenant .. '|' .. flavor
end

-- The row as a table; what is not there holds nothing and has version 0.
local function lease_from(holder, tenant, flavor, packed)
  local lease = { holder = holder, tenant = tenant, flavor = flavor, token = 0, version = 0, priority = 0, cut = 0,
    resources = {}, held = {}, target = {} }
  if packed then
    local token, version, priority, cut, rest = string.match(packed, '^(%d+)|(%d+)|(-?%d+)|(%d+)(.*)$')
    lease.token, lease.version, lease.priority, lease.cut = tonumber(token), tonumber(version), tonumber(priority), tonumber(cut)
    lease.had_cut = lease.cut > 0
    for resource, held, target in string.gmatch(rest, '|([^|]+)|(%d+)|(%d+)') do
      lease.resources[#lease.resources + 1] = resource
      lease.held[resource], lease.target[resource] = tonumber(held), tonumber(target)
    end
  end
  local rows = LEASE_ROWS[holder] or {}
  LEASE_ROWS[holder] = rows
  rows[field_of(tenant, flavor)] = lease
  LEASE_ORDER[#LEASE_ORDER + 1] = lease
  return lease
end

local function lease_of(holder, tenant, flavor)
  local field = field_of(tenant, flavor)
  local known = LEASE_ROWS[holder] and LEASE_ROWS[holder][field]
  return known or lease_from(holder, tenant, flavor, redis.call('HGET', LEASES .. holder, field))
end

-- All rows of a holder, in the order of their tenants and flavors.
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
    leases[#leases + 1] = known or lease_from(holder, tenant, flavor, packed[field])
  end
  return leases
end

local function packed_lease(lease)
  local parts = { text(lease.token), text(lease.version), text(lease.priority), text(lease.cut) }
  for _, resource in ipairs(lease.resources) do
    parts[#parts + 1] = resource
    parts[#parts + 1] = text(lease.held[resource])
    parts[#parts + 1] = text(lease.target[resource])
  end
  return table.concat(parts, '|')
end

local function is_empty(lease)
  for _, resource in ipairs(lease.resources) do
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

-- Set what a lease holds and what it aims at, of one resource; both sums of the tree follow.
local function set_amounts(lease, resource, held, target)
  local had, aimed = lease.held[resource], lease.target[resource]
  if not had then
    lease.resources[#lease.resources + 1] = resource
    had, aimed = 0, 0
  end
  lease.held[resource], lease.target[resource] = held, target
  local way = way_of(lease.tenant, lease.flavor, resource)
  charge(way, 'held', held - had)
  charge(way, 'target', target - aimed)
end

-- The lease was changed: a new version, and a new token for a new row.
local function note_change(lease, verb)
  lease.version = next_token()
  if lease.token == 0 then
    lease.token = lease.version
  end
  lease.changed = lease.changed and lease.changed .. ',' .. verb or verb
end

-- Write what was changed, the tree and the last token; each change is told in the log.
local function keep_leases()
  local gone, changed, marks, told = {}, {}, {}, {}
  keep_tree()
  for _, lease in ipairs(LEASE_ORDER) do
    if lease.changed then
      local field, packed = field_of(lease.tenant, lease.flavor), packed_lease(lease)
      lease.packed = packed
      local kept = is_empty(lease) and gone or changed
      kept[lease.holder] = kept[lease.holder] or {}
      table.insert(kept[lease.holder], field)
      if kept == changed then
        table.insert(kept[lease.holder], packed)
      end
      marks[lease.holder] = math.max(marks[lease.holder] or 0, lease.version)
      if lease.cut > 0 and kept == changed then
        redis.call('ZADD', CUTS, text(lease.cut + GRACE_MS), lease.holder .. '|' .. field)
      elseif lease.had_cut then
        redis.call('ZREM', CUTS, lease.holder .. '|' .. field)
      end
      told[#told + 1] = tostring(#told / 2)
      told[#told + 1] = table.concat({ lease.changed, lease.holder, field, packed }, '|')
      lease.changed, lease.had_cut = nil, lease.cut > 0
    end
  end
  for first = 1, #told, CHUNK do -- One entry for all changes of a call; each as 'verb|holder|tenant|flavor|row'.
    redis.call('XADD', LOG, 'MAXLEN', '~', '100000', '*', unpack(told, first, math.min(#told, first + CHUNK - 1)))
  end
  for holder, fields in pairs(gone) do
    in_pieces('HDEL', LEASES .. holder, fields)
  end
  for holder, pairs_of in pairs(changed) do
    in_pieces('HSET', LEASES .. holder, pairs_of)
  end
  for holder, mark in pairs(marks) do
    redis.call('HSET', MARKS, holder, text(mark))
    NEW_MARKS[holder] = mark
  end
  keep_token()
end

-- Everything of the mesh that changed after `seen`, as {tenant, flavor, row, ms until the cut or ''}, and the mark.
local function told_since(mesh, seen)
  local mark = NEW_MARKS[mesh] or MARK_BEFORE or tonumber(redis.call('HGET', MARKS, mesh) or '0')
  local rows, changed = {}, {}
  if seen ~= mark then -- Who had seen all when the script began has to be told what the script itself has changed.
    for _, lease in ipairs(seen == MARK_BEFORE and LEASE_ORDER or leases_of(mesh)) do
      if lease.holder == mesh and lease.version > seen and not is_empty(lease) then
        changed[#changed + 1] = { field_of(lease.tenant, lease.flavor), lease }
      end
    end
    table.sort(changed, function(one, other) return one[1] < other[1] end)
    for place, pair in ipairs(changed) do
      local lease = pair[2]
      local left = lease.cut > 0 and text(math.max(0, lease.cut - LT)) or ''
      rows[place] = { lease.tenant, lease.flavor, lease.packed or packed_lease(lease), left }
    end
  end
  local waiting = redis.call('SCARD', WANTING)
  waiting = waiting == 1 and 1 - redis.call('SISMEMBER', WANTING, mesh) or waiting
  return { 'OK', EPOCH, text(learn_left()), text(mark), waiting > 0 and '1' or '0', rows }
end

-- ---- wants: what a mesh could use and was not granted

-- Row of WANTS: JSON of [slot, slots, priority, LT since when]. True when nobody knew of it.
local function note_want(mesh, tenant, flavor, slot, slots, priority)
  local field = field_of(tenant, flavor)
  local before = redis.call('HGET', WANTS .. mesh, field)
  local since = before and cjson.decode(before)[4] or text(LT)
  local kept = {}
  for resource, units in pairs(slot) do
    kept[resource] = text(units)
  end
  redis.call('HSET', WANTS .. mesh, field, cjson.encode({ kept, text(slots), text(priority), since }))
  redis.call('SADD', WANTING, mesh)
  return not before
end

local function drop_want(mesh, field)
  if redis.call('HDEL', WANTS .. mesh, field) == 1 and redis.call('EXISTS', WANTS .. mesh) == 0 then
    redis.call('SREM', WANTING, mesh)
  end
end

local function drop_wants(mesh)
  redis.call('DEL', WANTS .. mesh)
  redis.call('SREM', WANTING, mesh)
end

-- Somebody wants what others may hold idle.
local function ask_others(mesh)
  for _, other in ipairs(redis.call('HKEYS', SESSIONS)) do
    if other ~= mesh and redis.call('EXISTS', LEASES .. other) == 1 then
      post_mail(other, 'lease', '')
    end
  end
end
