-- needs: keys, text
-- Queue of a mesh: READY orders its stages, and QUEUED_SLOTS counts what they could use. A stage that leaves the queue takes its demand along.

-- A field of QUEUED_SLOTS is 'tenant|priority', for gangs ':' and the number of bundles, and for each resource of a slot, by name,
-- '|resource|units'. Its value is the sum of the slots of all queued stages of this kind. A stage's record has the field as `kind`, empty when it needs no resources, and `width`.
local function enter_queue(stage, mesh, order, member, kind, width)
  redis.call('HSET', STAGE .. stage, 'member', member, 'kind', kind, 'width', width)
  redis.call('ZADD', READY .. mesh, order, member)
  if kind ~= '' then
    redis.call('HINCRBY', QUEUED_SLOTS .. mesh, kind, width)
  end
end

-- Add to a count; return the new count.
local function count_on(field, by)
  local count = redis.call('HINCRBY', DEMAND_COUNTS, field, by)
  if count == 0 then
    redis.call('HDEL', DEMAND_COUNTS, field)
  end
  return count
end

-- Count new rows and deleted ones.
local function count_demands(added, gone)
  local changes = {}
  for by, fields in pairs({ [1] = added, [-1] = gone }) do
    for place = 1, #fields do
      local lease_field = string.match(fields[place], '^[^|]+|[^|]+')
      changes[lease_field] = (changes[lease_field] or 0) + by
    end
  end
  for lease_field, by in pairs(changes) do
    local count = by ~= 0 and count_on(lease_field, by)
    if count == 0 or count == by then -- The tenant's last row of the flavor, or its first.
      count_on(string.match(lease_field, '[^|]+$'), count == 0 and -1 or 1)
    end
  end
end

-- Return tenant, flavor, priority with bundles and slot of a field of DEMANDS, the last two as in a kind; and whether it asks for a part of the slot.
local function parsed_demand(field)
  local tenant, flavor, priority, wanted = string.match(field, '^([^|]+)|([^|]+)|([^|]+)(.*)$')
  local whole = string.match(wanted, '||.*$')
  return tenant, flavor, priority, whole and string.sub(whole, 2) or wanted, whole ~= nil
end

-- Return the rows of DEMANDS for stages of a kind: by flavor a list of {field, slots, since, beyond, created}; first the newest, then parts of a slot.
local function demands_of_kind(mesh, kind, newest)
  local tenant, priority, slot = string.match(kind, '^([^|]+)|([^|]+)(.*)$')
  local flat, found = redis.call('HGETALL', DEMANDS .. mesh), {}
  for place = 1, #flat, 2 do
    local field = flat[place]
    local of, flavor, at, wanted, is_part = parsed_demand(field)
    if of == tenant and at == priority and wanted == slot then
      local slots, since, beyond, created = string.match(flat[place + 1], '^(%d+)|(-?%d+)|(%d+)|(%d+)$')
      local rows = found[flavor] or {}
      found[flavor] = rows
      rows[#rows + 1] = { field = field, slots = tonumber(slots), since = since, beyond = tonumber(beyond), created = created,
        rank = (field == newest and 0) or (is_part and 1) or 2 }
    end
  end
  for _, rows in pairs(found) do
    table.sort(rows, function(one, other)
      return one.rank < other.rank or (one.rank == other.rank and one.field < other.field)
    end)
  end
  return found
end

-- Reduce the demands for stages of a kind to this many slots of each flavor. `newest`: the demand that was recorded last, or nil.
local function bound_wants(mesh, kind, most, newest)
  for _, rows in pairs(demands_of_kind(mesh, kind, newest)) do
    local left = most
    for _, row in ipairs(rows) do
      row.kept = math.min(row.slots, left)
      left = left - row.kept
    end
    for _, row in ipairs(rows) do
      local beyond = math.min(row.beyond, left)
      left = left - beyond
      if row.kept == 0 then
        redis.call('HDEL', DEMANDS .. mesh, row.field)
        count_demands({}, { row.field })
      elseif row.kept < row.slots or beyond < row.beyond then
        redis.call('HSET', DEMANDS .. mesh, row.field, text(row.kept) .. '|' .. row.since .. '|' .. text(beyond) .. '|' .. row.created)
      end
    end
  end
  if redis.call('EXISTS', DEMANDS .. mesh) == 0 then
    redis.call('SREM', DEMANDING, mesh)
  end
end

-- Reduce older demands for the stages of a demand that has grown: a stage demands a slot or a part of one, not both.
local function bound_older_wants(mesh, field)
  local tenant, _, priority, slot = parsed_demand(field)
  local kind = tenant .. '|' .. priority .. slot
  local queued = redis.call('HGET', QUEUED_SLOTS .. mesh, kind)
  if queued then
    bound_wants(mesh, kind, tonumber(queued), field)
  end
end

-- Remove a stage from the queue, and what the mesh wanted for it alone. A stage that is not queued stays as it is.
local function leave_queue(stage, mesh)
  local member, kind, width = unpack(redis.call('HMGET', STAGE .. stage, 'member', 'kind', 'width'))
  if not member or redis.call('ZREM', READY .. mesh, member) == 0 or kind == '' then
    return
  end
  local left = redis.call('HINCRBY', QUEUED_SLOTS .. mesh, kind, '-' .. width)
  if left <= 0 then
    redis.call('HDEL', QUEUED_SLOTS .. mesh, kind)
  end
  if redis.call('SISMEMBER', DEMANDING, mesh) == 1 then
    bound_wants(mesh, kind, math.max(0, left))
  end
end
