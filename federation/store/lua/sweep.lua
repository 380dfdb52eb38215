-- needs: ending
-- on a full server: passes
-- Reclaim what is overdue by more than the grace: all leases of a session that was not renewed, and amounts above a target after the
-- deadline. A mesh that was swept and does not come back within a day is forgotten, because every scan of all meshes includes it.
-- While the ledger recovers, nothing is reclaimed.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   most leases to handle; the last session is always finished
-- Reply     {'OK', epoch, ms of recovery, reclaimed leases, list of meshes, list of stages, '1' when more is due, LT}

local limit, FORGET_MS = tonumber(ARGV[1]), 86400000
local leases, swept, stages, more, gone = 0, {}, {}, '0', {}

if recovery_left() == 0 then
  local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', '(' .. text(LT), 'LIMIT', '0', tostring(limit + 1))
  table.sort(due)
  for _, holder in ipairs(due) do
    if leases >= limit then
      more = '1'
      break
    end
    local session = session_of(holder)
    if session and session.expires > 0 and due_of(session) >= LT then
      redis.call('ZADD', DUE, text(due_of(session)), holder) -- Renewed since that was written.
    elseif session and session.expires == 0 then
      forget_mesh(session)
    else
      leases = leases + free_all(holder, 'expire')
      if session then
        for _, stage in ipairs(lose_stages(session, 'LEASE_EXPIRED')) do
          stages[#stages + 1] = stage
        end
        session.expires = 0
        write_session(session)
        redis.call('ZADD', DUE, text(LT + FORGET_MS), holder)
        drop_demands(holder)
        swept[#swept + 1] = holder
      else
        redis.call('ZREM', DUE, holder)
        gone[#gone + 1] = holder -- Leases of an earlier session of a mesh, which no call names any more.
      end
    end
  end
  local cuts = redis.call('ZRANGEBYSCORE', CUTS, '-inf', '(' .. text(LT), 'LIMIT', '0', tostring(limit + 1))
  more = (#due > limit or #cuts > limit) and '1' or more -- There may be more than were read.
  for _, member in ipairs(cuts) do
    if leases >= limit then
      more = '1'
      break
    end
    local holder, tenant, flavor = string.match(member, '^([^|]+)|(.+)|([^|]+)$')
    local lease = lease_of(holder, tenant, flavor)
    if shrinks(lease) then
      for _, resource in ipairs(lease.resources) do
        set_amounts(lease, resource, math.min(lease.held[resource], lease.target[resource]), lease.target[resource])
      end
      end_shrinking(lease)
      note_change(lease, 'cut')
      leases = leases + 1
    else
      redis.call('ZREM', CUTS, member)
    end
  end
  if #LEASE_ORDER > 0 then
    keep_leases()
  end
  for _, holder in ipairs(gone) do
    redis.call('HDEL', MARKS, holder, holder .. '|lost')
  end
  if leases > 0 then
    wake_wanting()
  end
end
return { 'OK', EPOCH, text(recovery_left()), leases, swept, stages, more, text(LT) }
