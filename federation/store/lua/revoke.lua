-- needs: session, lease
-- on a full server: passes
-- Set the targets of leases to nothing: their meshes preempt, or lose the leases at the deadline. Hard: claims under them fail at once.
--
-- KEYS      `Keys.scripted`
-- ARGV[1…3] mesh, tenant, flavor; '' stands for all
-- ARGV[4]   '1' for hard
-- Reply     {'OK', number of leases}

local mesh, tenant, flavor, is_hard = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local revoked = 0
for _, holder in ipairs(redis.call('ZRANGE', DUE, 0, -1)) do
  local session = session_of(holder)
  if session and (mesh == '' or mesh == holder) then
    for _, lease in ipairs(leases_of(holder)) do
      if (tenant == '' or tenant == lease.tenant) and (flavor == '' or flavor == lease.flavor) then
        for _, resource in ipairs(lease.resources) do
          set_amounts(lease, resource, lease.held[resource], 0)
        end
        note_change(lease, is_hard and 'revoke hard' or 'revoke')
        lease.token = is_hard and lease.version or lease.token
        shrink_by(lease, session.expires)
        revoked = revoked + 1
      end
    end
  end
end
if revoked > 0 then
  keep_leases()
end
return { 'OK', revoked }
