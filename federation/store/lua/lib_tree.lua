-- needs: keys, text
-- The quota arithmetic of `federation/tenants.py`, on the rows of TREE; every question walks once from a tenant to its root. It is
-- asked twice for each lease and resource of a call, so a node knows the one above it, and both sums are answered at once.
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
local PARENTS, NODES, TOUCHED = {}, {}, {}

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

-- A resource without a row has nominal 0; without a borrowing limit, `limit` is nil. `up` is the parent's node, nil at a
-- root; `node_of` puts it in.
local function add_node(key, quota, use)
  local node = { key = key, own = 0, kept = 0, limit = nil, held = 0, target = 0, up = nil, is_linked = false, is_touched = false }
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

-- The tenant's node, with all above it. `tail` is '|<flavor>|<resource>'.
local function node_of(tenant, tail)
  local key = tenant .. tail
  local node = NODES[key] or add_node(key, unpack(redis.call('HMGET', TREE, 'quota|' .. key, 'use|' .. key)))
  if not node.is_linked then
    local parent = parent_of(tenant)
    node.up = parent ~= '' and node_of(parent, tail) or nil
    node.is_linked = true
  end
  return node
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

-- What could be added now to what is held, and to what is aimed at; negative where a cut left it too large.
local function rooms_of(node)
  local up, own, held, target = node.up, node.own, node.held, node.target
  if not up then
    return own - held, own - target
  end
  local kept, limit = node.kept, node.limit
  local to_hold, to_aim = rooms_of(up)
  if limit then
    local most = own - kept + limit
    to_hold = math.min(to_hold, most - math.max(0, held - kept))
    to_aim = math.min(to_aim, most - math.max(0, target - kept))
  end
  if kept > held then
    to_hold = to_hold + kept - held
  end
  if kept > target then
    to_aim = to_aim + kept - target
  end
  return to_hold, to_aim
end

-- What the node could hold in an empty tree.
local function potential_of(node)
  if not node.up then
    return node.own
  end
  local potential = node.kept + potential_of(node.up)
  return node.limit and math.min(potential, node.own + node.limit) or potential
end

-- Add to both sums of a node, and to those above it what exceeds the kept parts.
local function charge(node, held, target)
  while node and (held ~= 0 or target ~= 0) do
    local kept, held_before, target_before = node.kept, node.held, node.target
    local held_after, target_after = held_before + held, target_before + target
    node.held, node.target = held_after, target_after
    if not node.is_touched then
      node.is_touched = true
      TOUCHED[#TOUCHED + 1] = node
    end
    if kept > 0 then
      held = math.max(0, held_after - kept) - math.max(0, held_before - kept)
      target = math.max(0, target_after - kept) - math.max(0, target_before - kept)
    end
    node = node.up
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
  for _, node in ipairs(TOUCHED) do
    local held, target = node.held, node.target
    if held == 0 and target == 0 then
      gone[#gone + 1] = 'use|' .. node.key
    else
      local packed = text(held)
      changed[#changed + 1] = 'use|' .. node.key
      changed[#changed + 1] = packed .. ' ' .. (target == held and packed or text(target))
    end
    node.is_touched = false
  end
  in_pieces('HDEL', TREE, gone)
  in_pieces('HSET', TREE, changed)
  TOUCHED = {}
end
