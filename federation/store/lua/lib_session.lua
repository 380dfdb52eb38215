-- needs: keys, clock, tree, post, stage, lease
-- Sessions: one life of a mesh. Its row in SESSIONS is '<incarnation>|<expires>|<heartbeat>|<beat>|<ttl_ms>', the two times in
-- LT; `expires` is 0 when the session was swept, so that people still see the mesh. Incarnations stay text: Lua never
-- counts with them. One heartbeat renews the session and all that it holds.

local function session_of(mesh)
  local packed = redis.call('HGET', SESSIONS, mesh)
  if not packed then
    return nil
  end
  local incarnation, expires, heartbeat, beat, ttl_ms = string.match(packed, '^(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  return {
    mesh = mesh,
    incarnation = incarnation,
    expires = tonumber(expires),
    heartbeat = tonumber(heartbeat),
    beat = tonumber(beat),
    ttl_ms = tonumber(ttl_ms),
  }
end

local function write_session(session)
  redis.call('HSET', SESSIONS, session.mesh, table.concat({ session.incarnation, text(session.expires), text(session.heartbeat),
    text(session.beat), text(session.ttl_ms) }, '|'))
end

-- Live again for its whole time from now on.
local function renew(session)
  session.heartbeat = LT
  session.expires = LT + session.ttl_ms
  write_session(session)
  redis.call('ZADD', DUE, text(session.expires + GRACE_MS), session.mesh)
end

-- Not swept, not superseded; its time may have run out.
local function is_current(session, incarnation)
  return session ~= nil and session.expires > 0 and session.incarnation == incarnation
end

-- Current, and within its time to live.
local function is_live(session, incarnation)
  return is_current(session, incarnation) and session.expires > LT
end

-- Why the session may not speak; nil when it may. `live`: its time must not have run out either.
local function why_lost(session, incarnation, live)
  if not session then
    return 'UNKNOWN'
  elseif session.incarnation ~= incarnation then
    return 'FENCED'
  elseif session.expires == 0 or (live and session.expires <= LT) then
    return 'EXPIRED'
  end
  return nil
end

-- A `StageLost`, as `STAGE_MESSAGES` of federation/dispatch.py reads it. The number is put in as text, see `text`.
local function stage_lost(stage, session)
  return '[{"kind":"stage_lost","reason":"LEASE_EXPIRED","stage":' .. cjson.encode(stage) .. ',"mesh":'
    .. cjson.encode(session.mesh) .. ',"incarnation":' .. session.incarnation .. '}]'
end

-- Report the claimed stages lost; which they were. Runs are read first: an error must not leave half of it done.
local function lose_stages(session)
  local claimed, runs = redis.call('SMEMBERS', CLAIMED .. session.mesh), {}
  table.sort(claimed)
  for place, stage in ipairs(claimed) do
    runs[place] = redis.call('HGET', STAGE .. stage, 'run') or ''
  end
  for place, stage in ipairs(claimed) do
    close_stage(stage, session.mesh, 'lost')
    post_inbox(runs[place], 'stage', stage_lost(stage, session))
  end
  return claimed
end

-- All that a holder has goes back up the tree; how many leases it was. `keep_leases` is the caller's.
local function free_all(holder, verb)
  local freed = 0
  for _, lease in ipairs(leases_of(holder)) do
    for _, resource in ipairs(lease.resources) do
      set_amounts(lease, resource, 0, 0)
    end
    note_change(lease, verb)
    freed = freed + 1
  end
  return freed
end
