-- needs: session
-- Begin a session of a mesh. An earlier one ends at once.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   the mesh's record, JSON
-- ARGV[3]   time to live, ms
-- Reply     the incarnation: a token, text

local mesh, record, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local earlier = session_of(mesh)
local held = earlier and holdings_of(earlier)
if held then
  give_back(held)
end
local incarnation = next_token()
write_session(mesh, incarnation, NOW_MS + ttl_ms, NOW_MS)
redis.call('HSET', MESHES, mesh, record)
if held and #held.leases > 0 then
  wake_meshes()
end
return incarnation
