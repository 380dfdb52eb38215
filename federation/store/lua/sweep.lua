-- needs: session
-- End every session that is overdue by more than the grace; their meshes stay visible, as not alive.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   grace, ms
-- Reply     {leases taken back, list of meshes, list of stages}

local grace_ms = tonumber(ARGV[1])

local overdue, meshes = {}, redis.call('HKEYS', SESSIONS)
table.sort(meshes)
for _, mesh in ipairs(meshes) do
  local session = session_of(mesh)
  if session.expires_ms > 0 and NOW_MS > session.expires_ms + grace_ms then
    overdue[#overdue + 1] = holdings_of(session)
  end
end

local leases, swept, stages = 0, {}, {}
for _, held in ipairs(overdue) do
  give_back(held)
  write_session(held.session.mesh, held.session.incarnation, 0, held.session.heartbeat_ms)
  leases = leases + #held.leases
  swept[#swept + 1] = held.session.mesh
  for _, lost in ipairs(held.stages) do
    stages[#stages + 1] = lost.stage
  end
end
if leases > 0 then
  wake_meshes()
end
return { leases, swept, stages }
