-- needs: keys, text
-- The quota arithmetic of `federation/tenants.py`, on the rows of TREE; every query walks once from a tenant to its root. Each lease and
-- resource of a call needs two queries, so a node knows its parent, and both sums are computed at once. Code that runs for each lease
-- or node uses numeric loops and concatenates each text at once: that saves a third of a grant's time.
--
-- Each node has two sums: `held`, and `target`. A lease that shrinks holds more than its target until its mesh has preempted; one
-- that may grow holds less. Growth has to fit under both sums, so quota that a plan moves from one lease to another is granted to no
-- third. Nodes are read once per script and written once, at its end, in `keep_tree`: an error before that has changed nothing.
--
-- Rows of TREE. They change only with the whole tree (META's `tree` is the name of the present one), so readers may cache them:
--   tenant|<path>            the tenant as JSON, for readers
--   parent|<path>            its parent's path, '' for a root
--   quota|<path>|<flavor>    for each resource '<resource>|<own>|<kept>|<borrowing limit or ->', computed at `configure`; preceded by a
--                            bar if the tenant names no quota of the flavor, and the amounts are what tenants below it lend
-- Rows of USE:
--   <path>|<flavor>          for each resource '<resource>|<held>|<target>', bubbled, in units; absent when all are 0
-- Rows of GONE, for removed tenants that leases are charged to, and for their removed ancestors:
--   <path>                   the former parent, '' for a root
--
-- A node is one tenant's flavor, so its two rows serve all resources of a lease. Its name is the field of the lease.

local max, min, HUGE = math.max, math.min, math.huge
local CHUNK = 500 -- Arguments of one command; `unpack` fails at some thousands.
local PARENTS, IS_CONFIGURED, NODES, TOUCHED = {}, {}, {}, {}
local BAR = string.byte('|')
local NO_ROW = { own = 0, kept = 0, limit = nil, held = 0, target = 0 }

-- HMGET in chunks; returns the values in the order of the fields.
local function many(key, fields)
  local values = {}
  for first = 1, #fields, CHUNK do
    local part = redis.call('HMGET', key, unpack(fields, first, min(#fields, first + CHUNK - 1)))
    for place = 1, #part do
      values[first + place - 1] = part[place]
    end
  end
  return values
end

-- Return rows of TREE, by name.
local AHEAD = {} -- Rows of the next tree; false: deleted. See configure.
local function rows_of_tree(fields)
  local rows = many(TREE, fields)
  if next(AHEAD) then
    for place = 1, #fields do
      local row = AHEAD[fields[place]]
      if row ~= nil then
        rows[place] = row
      end
    end
  end
  return rows
end

-- Store the parents of tenants: from the configured tree, or from GONE.
local function note_parents(tenants)
  local fields, gone = {}, {}
  for place = 1, #tenants do
    fields[place] = 'parent|' .. tenants[place]
  end
  local rows = rows_of_tree(fields)
  for place = 1, #tenants do
    local tenant, parent = tenants[place], rows[place]
    if parent then
      PARENTS[tenant], IS_CONFIGURED[tenant] = parent, true
    else
      gone[#gone + 1] = tenant
    end
  end
  rows = many(GONE, gone)
  for place = 1, #gone do
    PARENTS[gone[place]] = rows[place] or ''
  end
end

-- Parse '<resource>|<held>|<target>|…' to {resource, held, target, …}, read-only and cached: rows of one call are often equal.
local PARSED = {}
local function parsed(amounts)
  local parts = PARSED[amounts]
  if not parts then
    parts = {}
    for resource, held, target in string.gmatch(amounts, '([^|]+)|(%d+)|(%d+)') do
      parts[#parts + 1], parts[#parts + 2], parts[#parts + 3] = resource, tonumber(held), tonumber(target)
    end
    PARSED[amounts] = parts
  end
  return parts
end

-- Return the row of one resource; by default the nominal quota is 0 and `limit` is nil.
local function row_of(node, resource)
  local row = node.rows[resource]
  if not row then
    row = { own = 0, kept = 0, held = 0, target = 0 } -- No `limit`, as in most rows: four fields need half the memory of five.
    node.rows[resource] = row
  end
  return row
end

-- Copy a read row into a node.
local function fill_node(node, quota, use)
  if quota then
    node.is_named = string.byte(quota) ~= BAR
    for resource, own, kept, limit in string.gmatch(quota, '([^|]+)|(%d+)|(%d+)|([^|]+)') do
      local row = row_of(node, resource)
      row.own, row.kept, row.limit = tonumber(own), tonumber(kept), tonumber(limit)
    end
  end
  if use then
    local parts = parsed(use)
    for place = 1, #parts, 3 do
      local row = row_of(node, parts[place])
      row.held, row.target = parts[place + 1], parts[place + 2]
    end
  end
end

-- Create a node and its missing ancestors, and add new ones to `made`. Parents are known.
local function make_nodes(tenant, flavor, made)
  local below = nil
  while tenant ~= '' do
    local field = tenant .. '|' .. flavor
    local node = NODES[field]
    local is_new = not node
    if is_new then
      node = { field = field, up = nil, rows = {}, is_touched = false, is_named = false }
      NODES[field] = node
      made[#made + 1] = node
    end
    if below then
      below.up = node
    end
    if not is_new then
      return -- All its ancestors exist as well.
    end
    below, tenant = node, PARENTS[tenant]
  end
end

-- Read what many walks will need in few commands. `starts`: list of {tenant = …, flavor = …}.
local function read_ahead(starts)
  local level = {}
  for place = 1, #starts do
    level[starts[place].tenant] = true
  end
  while next(level) do -- One command for all parents of a level.
    local names = {}
    for tenant in pairs(level) do
      if PARENTS[tenant] == nil then
        names[#names + 1] = tenant
      end
    end
    note_parents(names)
    level = {}
    for place = 1, #names do
      local parent = PARENTS[names[place]]
      if parent ~= '' then
        level[parent] = true
      end
    end
  end
  local made, of_tree, of_use = {}, {}, {}
  for place = 1, #starts do
    make_nodes(starts[place].tenant, starts[place].flavor, made)
  end
  for place = 1, #made do
    local field = made[place].field
    of_tree[place], of_use[place] = 'quota|' .. field, field
  end
  local quotas, uses = rows_of_tree(of_tree), many(USE, of_use)
  for place = 1, #made do
    local quota, use = quotas[place], uses[place]
    if quota or use then
      fill_node(made[place], quota, use)
    end
  end
end

local function node_of(lease)
  if not NODES[lease.field] then
    read_ahead({ lease })
  end
  return NODES[lease.field]
end

-- Return whether the tenant's own work may use the flavor: the tenant or an ancestor names a quota of it.
local function is_open(node)
  while node do
    if node.is_named then
      return true
    end
    node = node.up
  end
  return false
end

-- Return what could be added now to `held`, and to `target`; negative after a quota reduction.
--
-- A node has the room of its parent, at most what its own limit leaves, plus the unused rest of the quota that it keeps, of which a
-- deficit above takes nothing. The walk up combines these: the result is `max(least, min(room above, most) + kept)`.
local function rooms_of(node, resource)
  if not is_open(node) then
    return 0, 0
  end
  local hold_most, hold_kept, hold_least, aim_most, aim_kept, aim_least = HUGE, 0, -HUGE, HUGE, 0, -HUGE
  local up = node.up
  while up do
    local row = node.rows[resource]
    if row then
      local kept, limit, held, target = row.kept, row.limit, row.held, row.target
      if kept > held then
        hold_most, hold_kept = hold_most - (kept - held), hold_kept + (kept - held)
        hold_least = max(hold_least, min(0, hold_most) + hold_kept)
      end
      if kept > target then
        aim_most, aim_kept = aim_most - (kept - target), aim_kept + (kept - target)
        aim_least = max(aim_least, min(0, aim_most) + aim_kept)
      end
      if limit then
        local most = row.own - kept + limit
        hold_most = min(hold_most, most - max(0, held - kept))
        aim_most = min(aim_most, most - max(0, target - kept))
      end
    end
    node, up = up, up.up
  end
  local row = node.rows[resource] or NO_ROW
  local to_hold, to_aim = min(row.own - row.held, hold_most) + hold_kept, min(row.own - row.target, aim_most) + aim_kept
  return max(hold_least, to_hold), max(aim_least, to_aim)
end

-- Return what the tenant could add within its own quota, the tenants below it included; beyond that it borrows.
local function own_left(node, resource)
  local row = node.rows[resource] or NO_ROW
  return max(0, row.own - max(row.held, row.target))
end

local function most_of(node, resource)
  local row = node.rows[resource] or NO_ROW
  if not node.up then
    return row.own
  end
  local most = row.kept + most_of(node.up, resource)
  return row.limit and min(most, row.own + row.limit) or most
end

-- Return what the node could hold in an empty tree.
local function potential_of(node, resource)
  return is_open(node) and most_of(node, resource) or 0
end

-- Add to both sums of a node; its ancestors get what exceeds the kept quota.
local function charge(node, resource, held, target)
  while node and (held ~= 0 or target ~= 0) do
    local row = node.rows[resource] or row_of(node, resource)
    local kept, held_before, target_before = row.kept, row.held, row.target
    local held_after, target_after = held_before + held, target_before + target
    row.held, row.target = held_after, target_after
    if not node.is_touched then
      node.is_touched = true
      TOUCHED[#TOUCHED + 1] = node
    end
    if kept > 0 then
      held = max(0, held_after - kept) - max(0, held_before - kept)
      target = max(0, target_after - kept) - max(0, target_before - kept)
    end
    node = node.up
  end
end

-- Run a command with a list of fields and values, or of fields, in chunks.
local function in_pieces(command, key, arguments)
  for first = 1, #arguments, CHUNK do
    redis.call(command, key, unpack(arguments, first, min(#arguments, first + CHUNK - 1)))
  end
end

local function packed_use(node)
  local packed = nil
  for resource, row in pairs(node.rows) do
    local held, target = row.held, row.target
    if held > 0 or target > 0 then
      local units = TEXTS[held] or text(held)
      local targeted = target == held and units or text(target)
      packed = packed and packed .. '|' .. resource .. '|' .. units .. '|' .. targeted or resource .. '|' .. units .. '|' .. targeted
    end
  end
  return packed
end

local function keep_tree()
  local gone, changed = {}, {}
  for place = 1, #TOUCHED do
    local node = TOUCHED[place]
    local packed = packed_use(node)
    if packed then
      changed[#changed + 1], changed[#changed + 2] = node.field, packed
    else
      gone[#gone + 1] = node.field
    end
    node.is_touched = false
  end
  in_pieces('HDEL', USE, gone)
  in_pieces('HSET', USE, changed)
  TOUCHED = {}
end
