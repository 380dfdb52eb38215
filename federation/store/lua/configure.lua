-- needs: session, lease
-- Put a drafted tree into force, if the tree that the caller knows still is; recompute the bubbled use of all leases. The script does not
-- iterate over the tree: it replaces the whole hash, however large, or changes a few rows.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   version of the tree to replace, '' for any
-- ARGV[2…4] time to live, grace, longest step of the lease clock; ms. Running sessions keep their time.
-- ARGV[5]   '1': refuse when a node that was within its limits would exceed them
-- ARGV[6]   name of the draft; the tree's name from then on
-- ARGV[7]   number of rows of the draft
-- ARGV[8]   name of the tree that the draft amends, with some hundred rows at most; '': the draft has all rows
-- ARGV[9…]  names of rows of that tree to delete
-- Reply     {'OK', version, list of nodes over their limits} | {'VERSION', version} | {'QUOTA', list of nodes} |
--           {'DRAFT'}: rows are missing, draft it again | {'OTHER'}: that tree is not in force, draft all rows

local draft, rows, amended = DRAFT .. ARGV[6], tonumber(ARGV[7]), ARGV[8]
local version, name = unpack(redis.call('HMGET', META, 'version', 'tree'))
local is_done = name == ARGV[6] -- By this very call, whose reply was lost.

local refusal = ARGV[1] ~= '' and ARGV[1] ~= version and { 'VERSION', version } or amended ~= '' and amended ~= name and { 'OTHER' }
  or redis.call('HLEN', draft) ~= rows and { 'DRAFT' }
if refusal and not is_done then
  redis.call('UNLINK', draft)
  return refusal
end

local leases = {}
for _, holder in ipairs(redis.call('ZRANGE', DUE, 0, -1)) do
  for _, lease in ipairs(leases_of(holder)) do
    leases[#leases + 1] = lease
  end
end

-- Return '<tenant>|<flavor>|<resource>' of all charged nodes above their limits.
local function over_limits()
  local over = {}
  for field, node in pairs(NODES) do
    for resource, row in pairs(node.rows) do
      if row.limit and row.held > row.own + row.limit or (not node.up and row.held > row.own) then
        over[field .. '|' .. resource] = true
      end
    end
  end
  return over
end

local function sorted(keys)
  local list = {}
  for key in pairs(keys) do
    list[#list + 1] = key
  end
  table.sort(list)
  return list
end

read_ahead(leases)
if is_done then
  return { 'OK', version, sorted(over_limits()) }
end
local was_over, before, replaced = over_limits(), PARENTS, TREE

-- From here on all reads see the new tree.
local changed = {}
PARENTS, NODES = {}, {}
if amended == '' then
  TREE = draft
else
  changed = redis.call('HGETALL', draft)
  for place = 1, #changed, 2 do
    AHEAD[changed[place]] = changed[place + 1]
  end
  for place = 9, #ARGV do
    AHEAD[ARGV[place]] = false
  end
end

-- Removed tenants that are still charged stay under their former parents, without quota: what they hold goes on
-- counting against their ancestors.
local gone, level = {}, {}
for _, lease in ipairs(leases) do
  level[lease.tenant] = true
end
while next(level) do
  local tenants, fields = {}, {}
  for tenant in pairs(level) do
    tenants[#tenants + 1], fields[#fields + 1] = tenant, 'parent|' .. tenant
  end
  local parents = rows_of_tree(fields)
  level = {}
  for place, tenant in ipairs(tenants) do
    local parent = parents[place]
    if not parent then
      parent = before[tenant]
      gone[#gone + 1], gone[#gone + 2] = tenant, parent
    end
    PARENTS[tenant] = parent
    if parent ~= '' and not PARENTS[parent] then
      level[parent] = true
    end
  end
end

-- Create the nodes of the new tree, with what the leases hold.
read_ahead(leases)
for _, node in pairs(NODES) do
  for _, row in pairs(node.rows) do
    row.held, row.target = 0, 0
  end
end
for _, lease in ipairs(leases) do
  for _, resource in ipairs(lease.resources) do
    charge(NODES[lease.field], resource, lease.held[resource], lease.target[resource])
  end
end
local over, newly_over = over_limits(), {}
for key in pairs(over) do
  newly_over[key] = not was_over[key] or nil
end
if ARGV[5] == '1' and next(newly_over) then
  redis.call('UNLINK', draft)
  return { 'QUOTA', sorted(newly_over) }
end

redis.call('UNLINK', USE, GONE) -- Frees memory in the background, whatever the size.
if amended == '' then
  redis.call('UNLINK', replaced)
  if rows > 0 then
    redis.call('PERSIST', draft)
    redis.call('RENAME', draft, replaced)
  end
else
  in_pieces('HDEL', TREE, { unpack(ARGV, 9) })
  in_pieces('HSET', TREE, changed)
  redis.call('UNLINK', draft)
end
in_pieces('HSET', GONE, gone)
keep_tree()
version = text(tonumber(version) + 1)
-- The recovery lasts longer than the longest time to live of any session.
redis.call('HSET', META, 'version', version, 'tree', ARGV[6], 'ttl_ms', ARGV[2], 'grace_ms', ARGV[3], 'max_step_ms', ARGV[4],
  'recovery_for_ms', text(math.max(rare('recovery_for_ms'), tonumber(ARGV[2]) + tonumber(ARGV[3]))))
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do -- What could never fit may fit now: notify every mesh with queued stages.
  if redis.call('ZCARD', READY .. mesh) > 0 then
    post_mail(mesh, 'stage', '')
  end
end
return { 'OK', version, sorted(over) }
