-- needs: keys, text
-- The quota arithmetic of `federation/tenants.py`, on the rows of TREE; every question walks once from a tenant to its root.
--
-- Two sums are kept for each node: of what is `held`, and of what is aimed at, the `target`. A lease that shrinks holds
-- more than its target until its mesh has given way; one that shall grow holds less. Growth has to fit under both, so what
-- one gives up for another by plan is taken by nobody else. Nodes are read once per script and written once, at its end,
-- in `keep_tree`: an error before that has changed nothing.
--
-- Rows of TREE:
--   tenant|<path>                       the tenant as JSON, for readers; only tenants of the present configuration have it
--   parent|<path>                       its parent's path, '' for a root; also for tenants that vanished while charged
--   quota|<path>|<flavor>|<resource>    '<own> <kept> <borrowing limit or ->', counted when the tree was configured
--   use|<path>|<flavor>|<resource>      '<held> <target>', bubbled, in units; absent when both are 0

local CHUNK = 500 -- Arguments of one command; `unpack` fails at some thousands.
local PARENTS, NODES, WAYS, TOUCHED = {}, {}, {}, {}

-- The same HMGET in pieces; the values in the order of the fields.
local function many(key, fields)
  local values = {}
  for first = 1, #fields, CHUNK do
    local part = redis.call('HMGET', key, unpack(fields, first, math.min(#fields, first + CHUNK - 1)))
    for place = 1, #part do
      values[first + place - 1] = part[place]
    end
  end
  return values
end

local function parent_of(tenant)
  local parent = PARENTS[tenant]
  if parent == nil then
    parent = redis.call('HGET', TREE, 'parent|' .. tenant) or ''
    PARENTS[tenant] = parent
  end
  return parent
end

-- A resource without a row has nominal 0; without a borrowing limit, `limit` is nil.
local function add_node(key, quota, use)
  local node = { key = key, own = 0, kept = 0, limit = nil, held = 0, target = 0 }
  if quota then
    local own, kept, limit = string.match(quota, '^(%d+) (%d+) (%S+)$')
    node.own, node.kept, node.limit = tonumber(own), tonumber(kept), tonumber(limit)
  end
  if use then
    local held, target = string.match(use, '^(%d+) (%d+)$')
    node.held, node.target = tonumber(held), tonumber(target)
  end
  NODES[key] = node
  return node
end

-- The nodes of the tenant, of its parent, … of its root.
local function way_of(tenant, flavor, resource)
  local tail = '|' .. flavor .. '|' .. resource
  local start = tenant .. tail
  local way = WAYS[start]
  if way then
    return way
  end
  way = {}
  while tenant ~= '' do
    local key = tenant .. tail
    way[#way + 1] = NODES[key] or add_node(key, unpack(redis.call('HMGET', TREE, 'quota|' .. key, 'use|' .. key)))
    tenant = parent_of(tenant)
  end
  WAYS[start] = way
  return way
end

-- Read what many walks will need in few commands. `starts`: list of {tenant, flavor, list of resources}.
local function read_ahead(starts)
  local level = {}
  for _, start in ipairs(starts) do
    level[start[1]] = true
  end
  while next(level) do -- One command for all parents of a level.
    local names, fields = {}, {}
    for tenant in pairs(level) do
      if PARENTS[tenant] == nil then
        names[#names + 1], fields[#fields + 1] = tenant, 'parent|' .. tenant
      end
    end
    level = {}
    for place, parent in ipairs(many(TREE, fields)) do
      PARENTS[names[place]] = parent or ''
      if parent and parent ~= '' then
        level[parent] = true
      end
    end
  end
  local keys, fields, known = {}, {}, {}
  for _, start in ipairs(starts) do
    for _, resource in ipairs(start[3]) do
      local tail, tenant = '|' .. start[2] .. '|' .. resource, start[1]
      while tenant ~= '' do
        local key = tenant .. tail
        if known[key] then
          break -- And all above it are known as well.
        end
        known[key] = true
        keys[#keys + 1], fields[#fields + 1], fields[#fields + 2] = key, 'quota|' .. key, 'use|' .. key
        tenant = PARENTS[tenant]
      end
    end
  end
  local rows = many(TREE, fields)
  for place, key in ipairs(keys) do
    if not NODES[key] then
      add_node(key, rows[2 * place - 1], rows[2 * place])
    end
  end
end

-- What could be added now to a sum ('held' or 'target') of the way's first node; negative where a cut left it too large.
local function room_of(way, sum)
  local root = way[#way]
  local room = root.own - root[sum]
  for place = #way - 1, 1, -1 do
    local node = way[place]
    local use = node[sum]
    if node.limit then
      room = math.min(room, (node.own - node.kept) - math.max(0, use - node.kept) + node.limit)
    end
    room = math.max(0, node.kept - use) + room
  end
  return room
end

-- What the way's first node could hold in an empty tree.
local function potential_of(way)
  local potential = way[#way].own
  for place = #way - 1, 1, -1 do
    local node = way[place]
    potential = node.kept + potential
    if node.limit then
      potential = math.min(potential, node.own + node.limit)
    end
  end
  return potential
end

-- Add to a sum of the way's first node, and to those above what exceeds the kept parts.
local function charge(way, sum, by)
  for _, node in ipairs(way) do
    if by == 0 then
      return
    end
    local before = node[sum]
    local after = before + by
    node[sum] = after
    TOUCHED[node.key] = node
    by = math.max(0, after - node.kept) - math.max(0, before - node.kept)
  end
end

-- A list of fields and values, or of fields, in pieces.
local function in_pieces(command, key, arguments)
  for first = 1, #arguments, CHUNK do
    redis.call(command, key, unpack(arguments, first, math.min(#arguments, first + CHUNK - 1)))
  end
end

local function keep_tree()
  local gone, changed = {}, {}
  for key, node in pairs(TOUCHED) do
    if node.held == 0 and node.target == 0 then
      gone[#gone + 1] = 'use|' .. key
    else
      changed[#changed + 1] = 'use|' .. key
      changed[#changed + 1] = text(node.held) .. ' ' .. text(node.target)
    end
  end
  table.sort(gone)
  in_pieces('HDEL', TREE, gone)
  in_pieces('HSET', TREE, changed)
  TOUCHED = {}
end
