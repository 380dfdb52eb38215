-- needs: caller, lease
-- on a full server: passes
-- Return what leases hold above some amounts; notify meshes that demand the freed capacity.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   lines 'tenant|flavor|version seen' and for each resource '|resource|units still held', each with its newline; leases
--           with a later version are left unchanged
-- Reply     {'OK', epoch, ms of recovery, mark, '1' when others wait for quota, leases}, see lib_lease; as in lib_caller;
--           {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local lost = why_lost(SESSION, INCARNATION, false)
if lost then
  return { lost }
end
local freed, parts = false, {}
for field, tenant, flavor, version, kept in string.gmatch(ARGV[6], '(([^|\n]+)|([^|\n]+))|(%d+)|?([^\n]*)\n') do
  parts[#parts + 1] = { field = field, tenant = tenant, flavor = flavor, version = tonumber(version), shape = shape_of(kept) }
end
read_leases(MESH, parts)
for place = 1, #parts do
  local part = parts[place]
  local lease = LEASE_ROWS[MESH][part.field]
  if lease.version == part.version and lease.version > 0 then
    local resources, units = lease.resources, part.shape.units
    for at = 1, #resources do
      local resource = resources[at]
      local held = min(lease.held[resource], units[resource] or 0)
      set_amounts(lease, resource, held, min(held, lease.target[resource]))
    end
    if not shrinks(lease) then
      end_shrinking(lease)
    end
    note_change(lease, 'release')
    freed = true
  end
end
if freed then
  keep_leases()
  wake_wanting()
end
return response_since(MESH, SEEN)
