-- needs: keys, clock
-- Sessions of meshes. A row in SESSIONS is '<incarnation>|<expires>|<heartbeat>|<heartbeat_number>|<ttl_ms>', the two times in LT. `expires` is 0
-- after a sweep, so the mesh stays visible for a day. Incarnations stay text: Lua never computes with them. One heartbeat
-- renews the session and all its leases.
--
-- DUE has a time no later than the session's end at which the sweep looks at the session. Most heartbeats leave it unchanged, and the
-- sweep checks the session itself. For a swept session DUE has the time at which the mesh is forgotten.

local floor = math.floor
local MARK_BEFORE = nil -- Mark of the caller's leases when the script began: see lib_caller.

local function session_of(mesh)
  local packed = redis.call('HGET', SESSIONS, mesh)
  if not packed then
    return nil
  end
  local incarnation, expires, heartbeat, heartbeat_number, ttl_ms = string.match(packed, '^(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  return {
    mesh = mesh,
    is_known = true, -- And so in DUE.
    incarnation = incarnation,
    expires = tonumber(expires),
    heartbeat = tonumber(heartbeat),
    heartbeat_number = tonumber(heartbeat_number),
    ttl_ms = tonumber(ttl_ms),
  }
end

local function write_session(session)
  redis.call('HSET', SESSIONS, session.mesh, session.incarnation .. '|' .. text(session.expires) .. '|' .. text(session.heartbeat)
    .. '|' .. text(session.heartbeat_number) .. '|' .. text(session.ttl_ms))
end

-- Return when the session's leases may be reclaimed.
local function due_of(session)
  return session.expires + rare('grace_ms')
end

-- Renew the session for its whole time. DUE moves once in each time to live, before it would fall due.
local function renew(session)
  local expires, ttl_ms = LT + session.ttl_ms, session.ttl_ms
  local is_noted = session.is_known and floor(session.expires / ttl_ms) == floor(expires / ttl_ms)
  session.heartbeat, session.expires = LT, expires
  write_session(session)
  if not is_noted then
    redis.call('ZADD', DUE, text(due_of(session)), session.mesh)
  end
end

-- Return whether the session is neither swept nor superseded; it may have expired.
local function is_current(session, incarnation)
  return session ~= nil and session.expires > 0 and session.incarnation == incarnation
end

-- Return whether the session is current and has not expired.
local function is_live(session, incarnation)
  return is_current(session, incarnation) and session.expires > LT
end

-- Return why the session may not call; nil when it may. `live`: an expired session may not call either.
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

-- Return whether any other mesh has recorded demands.
local function others_wait(mesh)
  local waiting = redis.call('SCARD', DEMANDING)
  waiting = waiting == 1 and 1 - redis.call('SISMEMBER', DEMANDING, mesh) or waiting
  return waiting > 0 and '1' or '0'
end
