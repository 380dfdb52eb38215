-- needs: session, lease
-- Put a drafted tree in force, if the present one is still the one that the caller knows; bubble the use of all leases anew. The tree
-- itself is not gone through: it takes the other's place whole, however large both are, or little of it is changed.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   version of the tree that is to be replaced, '' when it does not matter
-- ARGV[2…4] time to live, grace, longest step of the lease clock; ms. Running sessions keep the time that they were told.
-- ARGV[5]   '1': refuse when a node that was within its limits would be over them
-- ARGV[6]   name of the draft; the tree's from then on
-- ARGV[7]   rows of it
-- ARGV[8]   name of the tree of which the draft has what is new, some hundred rows at most; '': the draft has all
-- ARGV[9…]  names of rows of that tree that are no more
-- Reply     {'OK', version, list of nodes over their limits} | {'VERSION', version} | {'QUOTA', list of nodes} |
--           {'DRAFT'}: some of its rows are not there, draft it again | {'OTHER'}: that tree is not in force, draft all

local draft, rows, amended = DRAFT .. ARGV[6], tonumber(ARGV[7]), ARGV[8]
local version, name = unpack(redis.call('HMGET', META, 'version', 'tree'))
local is_done = name == ARGV[6] -- By this very call, whose answer was lost.

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

-- '<tenant>|<flavor>|<resource>' of all nodes that leases are charged to and that are over their limits.
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

-- From here on all questions are about the tree as it will be.
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

-- Tenants that are gone but still charged stay under the parents they had, without quota: what they hold goes on
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

-- The nodes as they will be, with what the leases hold.
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

redis.call('UNLINK', USE, GONE) -- Memory is freed meanwhile, however much it is.
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
-- Learning outlasts the longest time that any session was ever told.
redis.call('HSET', META, 'version', version, 'tree', ARGV[6], 'ttl_ms', ARGV[2], 'grace_ms', ARGV[3], 'max_step_ms', ARGV[4],
  'learn_for_ms', text(math.max(rare('learn_for_ms'), tonumber(ARGV[2]) + tonumber(ARGV[3]))))
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do -- What could never fit may fit now: every mesh with waiting stages looks again.
  if redis.call('ZCARD', READY .. mesh) > 0 then
    post_mail(mesh, 'stage', '')
  end
end
return { 'OK', version, sorted(over) }
