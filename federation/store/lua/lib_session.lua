-- needs: keys, clock, tree, post, stage
-- Sessions: one life of a mesh. Its row in SESSIONS is '<incarnation>|<expires_ms>|<heartbeat_ms>'; `expires_ms` is 0 when
-- the session was swept, so that people still see the mesh. Incarnations stay text: Lua never counts with them.

local function session_of(mesh)
  local packed = redis.call('HGET', SESSIONS, mesh)
  if not packed then
    return nil
  end
  local incarnation, expires_ms, heartbeat_ms = string.match(packed, '^(%d+)|(%d+)|(%d+)$')
  return {
    mesh = mesh,
    incarnation = incarnation,
    expires_ms = tonumber(expires_ms),
    heartbeat_ms = tonumber(heartbeat_ms),
  }
end

-- A server whose memory is full refuses a script at its first command that may grow it, and lets it pass once something
-- was deleted. Renewing and giving back must pass, so they delete first.
local function write_session(mesh, incarnation, expires_ms, heartbeat_ms)
  redis.call('HDEL', SESSIONS, mesh)
  redis.call('HSET', SESSIONS, mesh, incarnation .. '|' .. text(expires_ms) .. '|' .. text(heartbeat_ms))
end

-- Not swept, not superseded; its time may have run out.
local function is_current(session, incarnation)
  return session ~= nil and session.expires_ms > 0 and session.incarnation == incarnation
end

-- Current, and within its time to live.
local function is_live(session, incarnation)
  return is_current(session, incarnation) and session.expires_ms > NOW_MS
end

-- All that ending the session will touch, read and decoded before anything is written: an error in a script does not
-- undo what it wrote before.
local function holdings_of(session)
  local held = { session = session, leases = {}, stages = {} }
  for _, packed in ipairs(redis.call('HVALS', LEASES .. session.mesh)) do
    held.leases[#held.leases + 1] = cjson.decode(packed)
  end
  local claimed = redis.call('SMEMBERS', CLAIMED .. session.mesh)
  table.sort(claimed)
  for _, stage in ipairs(claimed) do
    held.stages[#held.stages + 1] = { stage = stage, run = redis.call('HGET', STAGE .. stage, 'run') or '' }
  end
  return held
end

-- A `StageLost`, as `STAGE_MESSAGES` of federation/dispatch.py reads it. The number is put in as text, see `text`.
local function stage_lost(stage, session)
  return '[{"kind":"stage_lost","reason":"LEASE_EXPIRED","stage":' .. cjson.encode(stage) .. ',"mesh":'
    .. cjson.encode(session.mesh) .. ',"incarnation":' .. session.incarnation .. '}]'
end

-- Return the leases up the tree, report the claimed stages lost. The session's own row is the caller's to write.
local function give_back(held)
  redis.call('DEL', LEASES .. held.session.mesh)
  for _, lease in ipairs(held.leases) do
    charge_lease(lease, -1)
  end
  for _, lost in ipairs(held.stages) do
    close_stage(lost.stage, held.session.mesh, 'lost')
    post_inbox(lost.run, 'stage', stage_lost(lost.stage, held.session))
  end
end
