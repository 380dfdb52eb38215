-- needs: session
-- End a session in good order: like a sweep of it, and people no longer see the mesh. Harmless when it is not the mesh's last.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- Reply     'OK'

local session = session_of(ARGV[1])
if not session or session.incarnation ~= ARGV[2] then
  return 'OK'
end
local held = holdings_of(session)
give_back(held)
redis.call('HDEL', SESSIONS, session.mesh)
redis.call('HDEL', MESHES, session.mesh)
if #held.leases > 0 then
  wake_meshes()
end
return 'OK'
