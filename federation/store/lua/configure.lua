-- needs: session, lease
-- Replace the tree, if it is still the one that the caller knows; bubble the use of all leases anew.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   version of the tree that is to be replaced, '' when it does not matter
-- ARGV[2…4] time to live, grace, longest step of the lease clock; ms. Running sessions keep the time that they were told.
-- ARGV[5]   '1': refuse when a node that was within its limits would be over them
-- ARGV[6]   JSON list of [path, parent path or '', tenant as JSON]
-- ARGV[7]   JSON list of [path, flavor, resource, '<own> <kept> <borrowing limit or ->'], units
-- Reply     {'OK', version, list of nodes over their limits} | {'VERSION', version} | {'CYCLE', path} | {'QUOTA', list of nodes}

local tenants, quotas = cjson.decode(ARGV[6]), cjson.decode(ARGV[7])
local version = redis.call('HGET', META, 'version')

if ARGV[1] ~= '' and ARGV[1] ~= version then
  return { 'VERSION', version }
end

local configured = {}
for _, tenant in ipairs(tenants) do
  configured[tenant[1]] = tenant[2]
end
for _, tenant in ipairs(tenants) do
  local above, steps = tenant[2], 0
  while above ~= '' and above do
    steps = steps + 1
    if steps > #tenants then
      return { 'CYCLE', tenant[1] }
    end
    above = configured[above]
  end
end

local leases = {}
for _, holder in ipairs(redis.call('ZRANGE', DUE, 0, -1)) do
  for _, lease in ipairs(leases_of(holder)) do
    leases[#leases + 1] = lease
  end
end

-- Tenants that are gone but still charged stay under the parents they had, without quota: what they hold goes on
-- counting against their ancestors.
local parents = {}
for _, tenant in ipairs(tenants) do
  parents[tenant[1]] = tenant[2]
end
for _, lease in ipairs(leases) do
  local tenant = lease.tenant
  while tenant ~= '' and not parents[tenant] do
    parents[tenant] = parent_of(tenant)
    tenant = parents[tenant]
  end
end

-- The nodes as they will be, with what the leases hold.
local function is_over(node)
  return node.limit and node.held > node.own + node.limit or (not node.up and node.held > node.own)
end
local was_over = {}
if ARGV[5] == '1' then
  for _, lease in ipairs(leases) do
    for _, resource in ipairs(lease.resources) do
      local node = node_of(lease.tenant, '|' .. lease.flavor .. '|' .. resource)
      while node do
        was_over[node.key] = is_over(node) and true or nil
        node = node.up
      end
    end
  end
end
PARENTS, NODES, TOUCHED = parents, {}, {}
for _, quota in ipairs(quotas) do
  add_node(table.concat({ quota[1], quota[2], quota[3] }, '|'), quota[4], nil)
end
local function new_node_of(tenant, tail)
  local node = NODES[tenant .. tail] or add_node(tenant .. tail, nil, nil)
  if not node.is_linked then
    node.up = parents[tenant] ~= '' and new_node_of(parents[tenant], tail) or nil
    node.is_linked = true
  end
  return node
end
for _, lease in ipairs(leases) do
  for _, resource in ipairs(lease.resources) do
    charge(new_node_of(lease.tenant, '|' .. lease.flavor .. '|' .. resource), lease.held[resource], lease.target[resource])
  end
end
local over, newly_over = {}, {}
for _, node in ipairs(TOUCHED) do
  if is_over(node) then
    over[#over + 1] = node.key
    if not was_over[node.key] then
      newly_over[#newly_over + 1] = node.key
    end
  end
end
table.sort(over)
if ARGV[5] == '1' and #newly_over > 0 then
  table.sort(newly_over)
  return { 'QUOTA', newly_over }
end

redis.call('DEL', TREE)
for _, tenant in ipairs(tenants) do
  redis.call('HSET', TREE, 'tenant|' .. tenant[1], tenant[3])
end
for path, parent in pairs(parents) do
  redis.call('HSET', TREE, 'parent|' .. path, parent)
end
for _, quota in ipairs(quotas) do
  redis.call('HSET', TREE, table.concat({ 'quota', quota[1], quota[2], quota[3] }, '|'), quota[4])
end
keep_tree()
version = text(tonumber(version) + 1)
-- Learning outlasts the longest time that any session was ever told.
redis.call('HSET', META, 'version', version, 'ttl_ms', ARGV[2], 'grace_ms', ARGV[3], 'max_step_ms', ARGV[4], 'learn_for_ms',
  text(math.max(LEARN_FOR_MS, tonumber(ARGV[2]) + tonumber(ARGV[3]))))
wake_meshes()
return { 'OK', version, over }
