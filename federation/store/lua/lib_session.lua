-- needs: keys, clock
-- Sessions: one life of a mesh. Its row in SESSIONS is '<incarnation>|<expires>|<heartbeat>|<beat>|<ttl_ms>', the two times in
-- LT; `expires` is 0 when the session was swept, so that people still see the mesh for a day. Incarnations stay text: Lua never
-- counts with them. One heartbeat renews the session and all that it holds.
--
-- DUE has when a session is to be looked at, no later than it is due: most heartbeats leave it as it is, and the sweep goes by
-- the session itself. Of a swept one it has when the mesh is forgotten.

local floor = math.floor
local MARK_BEFORE = nil -- Of the caller's leases, when the script began: see lib_caller.

local function session_of(mesh)
  local packed = redis.call('HGET', SESSIONS, mesh)
  if not packed then
    return nil
  end
  local incarnation, expires, heartbeat, beat, ttl_ms = string.match(packed, '^(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  return {
    mesh = mesh,
    is_known = true, -- And so in DUE.
    incarnation = incarnation,
    expires = tonumber(expires),
    heartbeat = tonumber(heartbeat),
    beat = tonumber(beat),
    ttl_ms = tonumber(ttl_ms),
  }
end

local function write_session(session)
  redis.call('HSET', SESSIONS, session.mesh, session.incarnation .. '|' .. text(session.expires) .. '|' .. text(session.heartbeat)
    .. '|' .. text(session.beat) .. '|' .. text(session.ttl_ms))
end

-- When what it holds may be taken back.
local function due_of(session)
  return session.expires + rare('grace_ms')
end

-- Live again for its whole time from now on. DUE is moved once in each time to live: before it would come, it is moved again.
local function renew(session)
  local expires, ttl_ms = LT + session.ttl_ms, session.ttl_ms
  local is_noted = session.is_known and floor(session.expires / ttl_ms) == floor(expires / ttl_ms)
  session.heartbeat, session.expires = LT, expires
  write_session(session)
  if not is_noted then
    redis.call('ZADD', DUE, text(due_of(session)), session.mesh)
  end
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

-- Is there a mesh that wants what it was not granted, but for this one?
local function others_want(mesh)
  local waiting = redis.call('SCARD', WANTING)
  waiting = waiting == 1 and 1 - redis.call('SISMEMBER', WANTING, mesh) or waiting
  return waiting > 0 and '1' or '0'
end
