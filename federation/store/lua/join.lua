-- needs: ending
-- Begin a session of a mesh. The claims of an earlier session are reported lost at once. Its leases stay until they expire,
-- because their work may still run: no mesh can vouch for a node that it does not reach.
--
-- A mesh that recovers an earlier session gets its claims and leases unchanged, if that session is still live. Not while the
-- ledger recovers: its record of that session may be older than grants to others. A repeated call, whose first reply was lost, finds
-- its own unused session in place of the one that it names.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   the mesh's record, JSON
-- ARGV[3]   incarnation of the earlier session to recover; '0': none
-- ARGV[4]   highest token that the mesh ever got, 0 when none
-- Reply     {'OK', epoch, ms of recovery, mark, others wait, leases, uid, incarnation, time to live in ms} | {'SKEW'};
--           without any change: {'RECOVERING', ms} | {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'}

local mesh, record, adopted, seen = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if is_from_the_future(seen) then
  return { 'SKEW' }
end
recover_from(seen)
local earlier = session_of(mesh)
local is_heir = adopted ~= '0'
if is_heir then
  if recovery_left() > 0 then
    return { 'RECOVERING', text(recovery_left()) }
  end
  local is_repeat = earlier and earlier.heartbeat_number == 0 and redis.call('HGET', MARKS, mesh .. '|successor') == adopted
  local lost = why_lost(earlier, is_repeat and earlier.incarnation or adopted, true)
  if lost then
    return { lost }
  end
end
local freed = false
if not is_heir and earlier and earlier.expires > 0 then
  lose_stages(earlier, 'LEASE_EXPIRED')
  if redis.call('EXISTS', LEASES .. mesh) == 1 then
    local holder = mesh .. '~' .. earlier.incarnation
    redis.call('RENAME', LEASES .. mesh, LEASES .. holder)
    redis.call('ZADD', DUE, text(due_of(earlier)), holder)
    for _, field in ipairs(redis.call('HKEYS', LEASES .. holder)) do
      redis.call('ZREM', CUTS, mesh .. '|' .. field)
    end
    for _, lease in ipairs(leases_of(holder)) do -- Growth that a plan reserved for the session becomes free again.
      if grows(lease) then
        for _, resource in ipairs(lease.resources) do
          set_amounts(lease, resource, lease.held[resource], math.min(lease.held[resource], lease.target[resource]))
        end
        note_change(lease, 'unplan')
        freed = true
      end
    end
  end
end
drop_demands(mesh)
local session = { mesh = mesh, incarnation = text(next_token()), heartbeat_number = 0, ttl_ms = rare('ttl_ms') }
if is_heir then
  hand_over_stages(session)
  redis.call('HSET', MARKS, mesh .. '|successor', adopted)
else
  redis.call('HDEL', MARKS, mesh .. '|successor')
end
keep_leases()
renew(session)
redis.call('HSET', MESHES, mesh, record)
if freed then
  wake_wanting()
end
local response = response_since(mesh, 0)
response[#response + 1], response[#response + 2], response[#response + 3] = UID, session.incarnation, text(session.ttl_ms)
return response
