-- needs: session, lease
-- on a full server: passes
-- Set targets of leases: lowered leases must shrink within their session's time, raised leases grow by heartbeats. A plan may let running
-- work go on for a while; the deadline is then that time plus twice the session's time, of which one passes until the mesh hears of it.
-- Meshes that must give up leases are also notified, and those whose leases can grow at once: nobody waits for the next heartbeat.
--
-- The sum of all targets stays within the limits: a lease is raised only by what fits after all reductions. A plan with the targets that
-- it saw moves a lease by no more than planned: later grants and releases stay.
--
-- Victims are stages that the plan stops, with an unchanged target for more urgent work of the same tenant. A lease keeps the
-- victims of earlier plans while it goes on shrinking, or while plans leave its target unchanged.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   token of the planner
-- ARGV[2]   version of the tree that the plan was made for
-- ARGV[3]   list of [mesh, tenant, flavor, ms that running work may go on (0: preempt at once, even against an earlier plan's delay;
--           -1: unspecified), {resource: units}, {resource: units that the plan saw} or false, victims: ',<claim token>…'], JSON
-- Reply     {'OK', number of the plan} | {'PLANNER'} | {'VERSION', version} | {'RECOVERING', ms} | {'QUOTA', tenant, flavor, resource}
--           | {'UNKNOWN', mesh}

local token, expires = unpack(redis.call('HMGET', PLAN, 'token', 'expires'))
local version = redis.call('HGET', META, 'version')
if token ~= ARGV[1] or tonumber(expires) <= LT then
  return { 'PLANNER' }
elseif version ~= ARGV[2] then
  return { 'VERSION', version }
elseif recovery_left() > 0 then
  return { 'RECOVERING', text(recovery_left()) }
end

-- As `federation.leases.merged_target`.
local function merged_target(now, before, units)
  if units > before then
    return max(now, min(units, now + units - before))
  elseif units < before then
    return min(now, max(units, now + units - before))
  end
  return now
end

local raised, growing, shrinking, woken = {}, {}, {}, {}
for _, target_update in ipairs(cjson.decode(ARGV[3])) do
  local mesh, tenant, flavor, wait, target, seen, named = unpack(target_update)
  local session = session_of(mesh)
  if not session or session.expires == 0 then
    return { 'UNKNOWN', mesh }
  end
  local lease, is_changed, is_lowered = lease_of(mesh, tenant, flavor), false, false
  for _, resource in ipairs({ unpack(lease.resources) }) do
    target[resource] = target[resource] or 0
  end
  for resource, wanted in pairs(target) do
    local held, before = lease.held[resource] or 0, lease.target[resource] or 0
    local units = seen and merged_target(before, seen[resource] or 0, wanted) or wanted
    if units > before then
      raised[#raised + 1] = { lease, resource, units }
    elseif units < before then
      set_amounts(lease, resource, held, units)
      is_lowered = true
    end
    is_changed = is_changed or units ~= before
  end
  local is_hurried = wait == 0 and lease.cut > session.expires
  local is_named = lease.version > 0 and unite(lease.victims, named) ~= lease.victims
  lease.named, lease.is_moved = (lease.named or '') .. named, lease.is_moved or is_changed
  if is_changed or is_hurried or is_named then
    note_change(lease, 'plan')
    local latest = wait > 0 and LT + 2 * rare('ttl_ms') + wait or session.expires
    -- A lease that gets part of its target back keeps its former deadline for the rest.
    lease.latest = (is_lowered or is_hurried or lease.cut == 0) and latest or lease.cut
  end
end
for _, raise in ipairs(raised) do
  local lease, resource, units = unpack(raise)
  local by = units - (lease.target[resource] or 0)
  local to_hold, to_aim = rooms_of(node_of(lease), resource)
  if to_aim < by then
    return { 'QUOTA', lease.tenant, lease.flavor, resource }
  end
  set_amounts(lease, resource, lease.held[resource] or 0, units)
  growing[lease.holder] = true
  woken[lease.holder] = woken[lease.holder] or to_hold > 0
end
for _, lease in ipairs(LEASE_ORDER) do
  if lease.changed then
    local is_new = lease.cut == 0
    shrink_by(lease, lease.latest)
    if lease.is_moved and is_new then
      lease.victims = ''
    end
    lease.victims = unite(lease.victims, lease.named)
    shrinking[lease.holder] = shrinking[lease.holder] or lease.cut > 0 or lease.victims ~= ''
  end
end
keep_leases()
for mesh, has_to_shrink in pairs(shrinking) do
  if has_to_shrink then
    post_mail(mesh, 'plan', '')
  end
end
for mesh, can_grow in pairs(woken) do
  if can_grow then
    post_mail(mesh, 'stage', '')
  end
end
for mesh in pairs(growing) do
  redis.call('HSET', MARKS, mesh .. '|grow', '1')
end
return { 'OK', text(redis.call('HINCRBY', PLAN, 'number', 1)) }
