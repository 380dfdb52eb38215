-- needs: session
-- Renew a session, and with it all that it holds; O(1) whatever it holds.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   the mesh's record, JSON
-- ARGV[4]   time to live, ms
-- Reply     'OK' | 'SESSION_LOST'

local mesh, incarnation, record, ttl_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if not is_current(session_of(mesh), incarnation) then
  return 'SESSION_LOST'
end
write_session(mesh, incarnation, NOW_MS + ttl_ms, NOW_MS)
redis.call('HSET', MESHES, mesh, record)
return 'OK'
