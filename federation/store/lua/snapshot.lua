-- needs: session
-- Everything that routing and people look at, at one instant.
--
-- KEYS      `Keys.scripted`
-- Reply     {now in ms, all of TREE (field, value, …), list of
--            {mesh, record as JSON, incarnation, 1 when alive else 0, heartbeat age in ms, stages waiting, stages claimed,
--             its leases (id, JSON, …)}}

local meshes = {}
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do
  local session = session_of(mesh)
  meshes[#meshes + 1] = {
    mesh,
    redis.call('HGET', MESHES, mesh),
    session.incarnation,
    is_live(session, session.incarnation) and 1 or 0,
    text(NOW_MS - session.heartbeat_ms),
    redis.call('ZCARD', READY .. mesh),
    redis.call('SCARD', CLAIMED .. mesh),
    redis.call('HGETALL', LEASES .. mesh),
  }
end
return { text(NOW_MS), redis.call('HGETALL', TREE), meshes }
