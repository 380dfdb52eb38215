-- needs: session
-- Grant as many whole slots as the tree allows, at most as many as wanted, and the next fencing token.
--
-- A lease is charged whole or not at all, and every resource of the slot limits the number alike: n slots are granted
-- where n is the least that any of them allows. A lease id that is held already is answered with what it holds.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   lease id
-- ARGV[4]   tenant path
-- ARGV[5]   flavor
-- ARGV[6]   slot: JSON object of resource to units, the units as text
-- ARGV[7]   slots wanted, at least 1
-- Reply     {'GRANTED', lease as JSON: all numbers as text}
--           {'REFUSED', reason, resource that is short, units of it wanted for one slot, units of it available}
--           {'SESSION_LOST'} | {'UNKNOWN_TENANT'}

local mesh, incarnation, id, tenant, flavor = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local slot, slots = cjson.decode(ARGV[6]), tonumber(ARGV[7])

if not is_live(session_of(mesh), incarnation) then
  return { 'SESSION_LOST' }
end
local held = redis.call('HGET', LEASES .. mesh, id)
if held then
  return { 'GRANTED', held }
end
if redis.call('HEXISTS', TREE, 'tenant|' .. tenant) == 0 then
  return { 'UNKNOWN_TENANT' }
end

local resources = {}
for resource in pairs(slot) do
  resources[#resources + 1] = resource
end
table.sort(resources)

local way, short, never = way_up(tenant), nil, nil
for _, resource in ipairs(resources) do
  local units = tonumber(slot[resource])
  local available, potential = room_of(way, flavor, resource)
  available = math.max(0, available)
  local fits = math.floor(available / units) -- Exact: below 2^53 no quotient is rounded up to the next whole number.
  slots = math.min(slots, fits)
  if fits == 0 and not short then
    short = { 'REFUSED', 'QUOTA_EXHAUSTED', resource, text(units), text(available) }
  end
  if potential < units and not never then
    never = { 'REFUSED', 'QUOTA_TOO_SMALL', resource, text(units), text(available) }
  end
end
if short then
  return never or short
end

local lease = { tenant = tenant, flavor = flavor, slot = slot, slots = text(slots), token = next_token() }
local packed = cjson.encode(lease)
charge_lease(lease, 1)
redis.call('HSET', LEASES .. mesh, id, packed)
return { 'GRANTED', packed }
