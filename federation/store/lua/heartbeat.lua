-- needs: caller, lease
-- on a full server: passes
-- Renew a session with all its leases: O(1) in the leases, unless something has changed.
--
-- While the ledger recovers, the mesh reports all leases that it holds. The script restores reported leases that the ledger has lost,
-- even above the quota, since they are in use. It removes leases that the mesh does not report. A claim to a lease whose return
-- the ledger itself has seen is an old receipt, and is ignored.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   the mesh's record, JSON
-- ARGV[7]   number of the heartbeat, counting up by one; a repeated number gets a reply and changes nothing
-- ARGV[8]   changes, JSON, '' when there are none:
--             acks        list of [tenant, flavor, version seen, {resource: units that are not exceeded any more}]
--             demands     list of [field of DEMANDS, slots, ms waited or -1, slots beyond, ms of submission]: all demands of the mesh; absent: unchanged
--             lease_uses  list of [tenant, flavor, priority of the most urgent work that the lease pays for]: changed ones
--             claims      list of [tenant, flavor, token, version, priority, {resource: units held}]: all leases that the mesh holds
-- Reply     {'OK', epoch, ms of recovery, mark, '1' when others wait for quota, leases}, see lib_lease; as in lib_caller;
--           {'UNKNOWN'} | {'FENCED'} | {'EXPIRED'} | {'STALE'} | {'HOLDINGS'}: report all leases held

local record, heartbeat_number, updates = ARGV[6], tonumber(ARGV[7]), ARGV[8] ~= '' and cjson.decode(ARGV[8]) or {}

local is_known = SESSION ~= nil -- By the ledger's record, not by the mesh's word.
if not SESSION and INCARNATION ~= '0' and recovery_left() > 0 and updates.claims then -- The ledger has lost the session itself.
  SESSION = { mesh = MESH, incarnation = INCARNATION, expires = math.max(1, LT), heartbeat_number = 0, ttl_ms = rare('ttl_ms') }
end
local lost = why_lost(SESSION, INCARNATION, false)
if lost then
  return { lost }
end
if heartbeat_number < SESSION.heartbeat_number then
  return { 'STALE' }
elseif heartbeat_number == SESSION.heartbeat_number then
  return response_since(MESH, SEEN)
end
if recovery_left() > 0 and not updates.claims then
  return { 'HOLDINGS' }
end

-- Restore a lease that the mesh holds, and that this ledger has in an older version or not at all.
local function restore(claim, named, seen)
  local tenant, flavor, token, version, priority, held = unpack(claim)
  local lease = lease_of(MESH, tenant, flavor)
  named[lease] = true
  if lease.version == 0 and version <= seen then
    return
  end
  if redis.call('HEXISTS', TREE, 'parent|' .. tenant) == 0 then
    redis.call('HSETNX', GONE, tenant, '') -- A tenant that the ledger has lost as well.
  end
  if lease.version < version then
    for _, resource in ipairs({ unpack(lease.resources) }) do
      set_amounts(lease, resource, held[resource] or 0, held[resource] or 0)
      held[resource] = nil
    end
    for resource, units in pairs(held) do
      set_amounts(lease, resource, units, units)
    end
    note_change(lease, 'restore') -- A new version, so the lease is reported: the mesh may know it with another target.
    lease.token, lease.priority, lease.cut, lease.victims = token, priority, 0, ''
  end
end

local freed = false
if recovery_left() > 0 then
  local named = {}
  local seen = math.max(mark_before_loss(MESH), is_known and tonumber(INCARNATION) or 0)
  for _, claim in ipairs(updates.claims) do
    restore(claim, named, seen)
  end
  for _, lease in ipairs(leases_of(MESH)) do
    if not named[lease] then
      for _, resource in ipairs(lease.resources) do
        set_amounts(lease, resource, 0, 0)
      end
      note_change(lease, 'not held')
    end
  end
end

-- The mesh has preempted its work above the target. Only an acknowledgement of the current version counts: an earlier one may be older
-- than a grant.
for _, ack in ipairs(updates.acks or {}) do
  local lease = lease_of(MESH, ack[1], ack[2])
  local obeyed = lease.version == ack[3] and shrinks(lease)
  for _, resource in ipairs(lease.resources) do
    obeyed = obeyed and (ack[4][resource] or 0) <= lease.target[resource]
  end
  if obeyed then
    for _, resource in ipairs(lease.resources) do
      set_amounts(lease, resource, math.min(lease.held[resource], lease.target[resource]), lease.target[resource])
    end
    end_shrinking(lease)
    note_change(lease, 'shrink')
    freed = true
  end
end

-- No new version: the mesh knows the priority, and its actions do not depend on it.
for _, use in ipairs(updates.lease_uses or {}) do
  local lease = lease_of(MESH, use[1], use[2])
  if lease.version > 0 and lease.priority ~= use[3] then
    lease.priority, lease.is_noted = use[3], true
  end
end

-- Demands are relative to what the mesh held before this heartbeat, so growth by this heartbeat is subtracted from them.
if updates.demands then
  replace_demands(MESH, updates.demands)
end

-- Leases grow to planned targets as soon as there is capacity.
if GROWS and recovery_left() == 0 then
  local grown = true
  for _, lease in ipairs(leases_of(MESH)) do
    if grows(lease) then
      local more, grown_by = false, {}
      for _, resource in ipairs(lease.resources) do
        local held, target = lease.held[resource], lease.target[resource]
        local by = math.min(target - held, math.max(0, (rooms_of(node_of(lease), resource))))
        if by > 0 then
          set_amounts(lease, resource, held + by, target)
          more, grown_by[resource] = true, by
        end
      end
      if more then
        lease.priority = math.max(lease.priority, meet_demands(MESH, lease.field, grown_by) or lease.priority)
        note_change(lease, 'grow')
      end
      grown = grown and not grows(lease)
    end
  end
  if grown then
    redis.call('HDEL', MARKS, MESH .. '|grow')
  end
end

SESSION.heartbeat_number = heartbeat_number
renew(SESSION)
redis.call('HSET', MESHES, MESH, record)
if #LEASE_ORDER > 0 then
  keep_leases()
end
if freed then
  wake_wanting()
end
return response_since(MESH, SEEN)
