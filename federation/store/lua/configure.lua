-- needs: session
-- Replace the tree; bubble the use of all live leases anew; tell meshes with waiting stages to look again.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   JSON list of [path, parent path or '', tenant as JSON]
-- ARGV[2]   JSON list of [path, flavor, resource, '<own> <kept> <borrowing limit or ->'], units
-- Reply     'OK'

local tenants, quotas = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])

local configured = {}
for _, tenant in ipairs(tenants) do
  configured[tenant[1]] = true
end

local leases = {}
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do
  for _, packed in ipairs(redis.call('HVALS', LEASES .. mesh)) do
    leases[#leases + 1] = cjson.decode(packed)
  end
end

-- Tenants that are gone but still charged stay under the parents they had, without quota: what they hold goes on
-- counting against their ancestors.
local vanished = {}
for _, lease in ipairs(leases) do
  local tenant = lease.tenant
  while tenant ~= '' and not configured[tenant] and not vanished[tenant] do
    vanished[tenant] = redis.call('HGET', TREE, 'parent|' .. tenant) or ''
    tenant = vanished[tenant]
  end
end

redis.call('DEL', TREE)
for _, tenant in ipairs(tenants) do
  redis.call('HSET', TREE, 'parent|' .. tenant[1], tenant[2], 'tenant|' .. tenant[1], tenant[3])
end
for path, parent in pairs(vanished) do
  redis.call('HSET', TREE, 'parent|' .. path, parent)
end
for _, quota in ipairs(quotas) do
  redis.call('HSET', TREE, row('quota', quota[1], quota[2], quota[3]), quota[4])
end
for _, lease in ipairs(leases) do
  charge_lease(lease, 1)
end
wake_meshes()
return 'OK'
