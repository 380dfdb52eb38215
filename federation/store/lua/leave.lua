-- needs: ending
-- on a full server: passes
-- End a session after all its work has ended; the mesh disappears from displays. Harmless when it is not the mesh's last session.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- Reply     {'OK'}

local session = session_of(ARGV[1])
if not session or session.incarnation ~= ARGV[2] then
  return { 'OK' }
end
lose_stages(session, 'MESH_LEFT')
local freed = free_all(session.mesh, 'leave')
keep_leases()
drop_demands(session.mesh)
forget_mesh(session)
if freed > 0 then
  wake_wanting()
end
return { 'OK' }
