-- needs: session
-- Give a lease back, once; meshes with waiting stages look again.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   lease id
-- Reply     'RELEASED' | 'NOT_HELD' | 'SESSION_LOST'

local mesh, incarnation, id = ARGV[1], ARGV[2], ARGV[3]

if not is_current(session_of(mesh), incarnation) then
  return 'SESSION_LOST'
end
local packed = redis.call('HGET', LEASES .. mesh, id)
if not packed then
  return 'NOT_HELD'
end
local lease = cjson.decode(packed)
redis.call('HDEL', LEASES .. mesh, id) -- First: see write_session.
charge_lease(lease, -1)
wake_meshes()
return 'RELEASED'
