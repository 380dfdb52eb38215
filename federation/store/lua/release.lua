-- needs: caller
-- Give back what leases hold above some amounts; what frees room lets meshes with waiting stages look again.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   list of [tenant, flavor, version seen, {resource: units still held}], JSON; what was changed since is left as it is
-- Reply     {'OK', epoch, ms of learning, mark, '1' when others wait for quota, leases}, see lib_lease; as in lib_caller;
--           {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local lost = why_lost(SESSION, INCARNATION, false)
if lost then
  return { lost }
end
local freed = false
for _, part in ipairs(cjson.decode(ARGV[6])) do
  local lease = lease_of(MESH, part[1], part[2])
  if lease.version == part[3] and lease.version > 0 then
    for _, resource in ipairs(lease.resources) do
      local held = math.min(lease.held[resource], part[4][resource] or 0)
      set_amounts(lease, resource, held, math.min(held, lease.target[resource]))
    end
    if not shrinks(lease) then
      lease.cut = 0
    end
    note_change(lease, 'release')
    freed = true
  end
end
if freed then
  redis.call('HDEL', META, '-') -- First: see lib_clock.
  keep_leases()
  wake_meshes()
end
return told_since(MESH, SEEN)
