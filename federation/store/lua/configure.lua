-- needs: session, lease
-- Replace the tree, if it is still the one that the caller knows; bubble the use of all leases anew.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   version of the tree that is to be replaced, '' when it does not matter
-- ARGV[2…4] time to live, grace, longest step of the lease clock; ms. Running sessions keep the time that they were told.
-- ARGV[5]   '1': refuse when a node that was within its limits would be over them
-- ARGV[6]   JSON list of [path, parent path or '', tenant as JSON]
-- ARGV[7]   JSON list of [path, flavor, the quota row of lib_tree]
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
local function is_over(node, row)
  return row.limit and row.held > row.own + row.limit or (not node.up and row.held > row.own)
end
local was_over = {}
if ARGV[5] == '1' then
  for _, lease in ipairs(leases) do
    local node = node_of(lease)
    while node do
      for resource, row in pairs(node.rows) do
        was_over[node.field .. '|' .. resource] = is_over(node, row) and true or nil
      end
      node = node.up
    end
  end
end
PARENTS, NODES, TOUCHED = parents, {}, {}
for _, lease in ipairs(leases) do
  make_nodes(lease.tenant, lease.flavor, {})
end
for _, quota in ipairs(quotas) do -- Of nodes that nothing is charged to, nothing has to be counted.
  local node = NODES[field_of(quota[1], quota[2])]
  if node then
    fill_node(node, quota[3], nil)
  end
end
for _, lease in ipairs(leases) do
  for _, resource in ipairs(lease.resources) do
    charge(NODES[lease.field], resource, lease.held[resource], lease.target[resource])
  end
end
local over, newly_over = {}, {}
for _, node in ipairs(TOUCHED) do
  for resource, row in pairs(node.rows) do
    if is_over(node, row) then
      local key = node.field .. '|' .. resource
      over[#over + 1] = key
      if not was_over[key] then
        newly_over[#newly_over + 1] = key
      end
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
  redis.call('HSET', TREE, 'parent|' .. path, (configured[path] and '+' or '-') .. parent)
end
for _, quota in ipairs(quotas) do
  redis.call('HSET', TREE, 'quota|' .. field_of(quota[1], quota[2]), quota[3])
end
keep_tree()
version = text(tonumber(version) + 1)
-- Learning outlasts the longest time that any session was ever told.
redis.call('HSET', META, 'version', version, 'ttl_ms', ARGV[2], 'grace_ms', ARGV[3], 'max_step_ms', ARGV[4], 'learn_for_ms',
  text(math.max(rare('learn_for_ms'), tonumber(ARGV[2]) + tonumber(ARGV[3]))))
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do -- What could never fit may fit now: every mesh with waiting stages looks again.
  if redis.call('ZCARD', READY .. mesh) > 0 then
    post_mail(mesh, 'stage', '')
  end
end
return { 'OK', version, over }
