-- needs: session
-- on a full server: passes
-- Return everything that routing, planning and displays need, at one instant.
--
-- KEYS      `Keys.scripted`
-- Reply     {'OK', epoch, ms of recovery, LT, now in ms, version and name of the tree, all of GONE and all of USE (field, value,
--            …): readers get TREE itself with `tree` and cache it by its name; list of
--            {mesh, record as JSON, incarnation, 1 when alive else 0, heartbeat age in ms, stages waiting, stages claimed},
--            list of {holder, its leases (field, row, …)}, list of {mesh, its demands (field, row, …)},
--            list of {mesh, its running stages that leases pay for (stage, row, …)}}

local meshes, leases, demands, running = {}, {}, {}, {}
for _, mesh in ipairs(redis.call('HKEYS', SESSIONS)) do
  local session = session_of(mesh)
  meshes[#meshes + 1] = {
    mesh,
    redis.call('HGET', MESHES, mesh),
    session.incarnation,
    is_live(session, session.incarnation) and 1 or 0,
    text(LT - session.heartbeat),
    redis.call('ZCARD', READY .. mesh),
    redis.call('ZCARD', CLAIMED .. mesh),
  }
  running[#running + 1] = { mesh, redis.call('HGETALL', RUNNING .. mesh) }
end
for _, holder in ipairs(redis.call('ZRANGE', DUE, 0, -1)) do
  leases[#leases + 1] = { holder, redis.call('HGETALL', LEASES .. holder) }
end
for _, mesh in ipairs(redis.call('SMEMBERS', DEMANDING)) do
  demands[#demands + 1] = { mesh, redis.call('HGETALL', DEMANDS .. mesh) }
end
local version, tree = unpack(redis.call('HMGET', META, 'version', 'tree'))
return { 'OK', EPOCH, text(recovery_left()), text(LT), text(math.floor(NOW_US / 1000)), version, tree,
  redis.call('HGETALL', GONE), redis.call('HGETALL', USE), meshes, leases, demands, running }
