-- needs: keys, clock, session, tree, post, stage, lease
-- End of a session: its claims are reported lost and its leases returned to the tree; or a new session recovers them.

-- A `StageLost`, as `STAGE_MESSAGES` of federation/dispatch.py decodes it. The number is inserted as text, see `text`.
local function stage_lost(stage, session, reason)
  return '[{"kind":"stage_lost","reason":"' .. reason .. '","stage":' .. cjson.encode(stage) .. ',"mesh":'
    .. cjson.encode(session.mesh) .. ',"incarnation":' .. session.incarnation .. '}]'
end

-- Report the claimed stages as lost with the reason, and return them. Runs are read first: an error must not leave half of the writes.
local function lose_stages(session, reason)
  local claimed, runs = redis.call('ZRANGE', CLAIMED .. session.mesh, 0, -1), {}
  table.sort(claimed)
  for place, stage in ipairs(claimed) do
    runs[place] = redis.call('HGET', STAGE .. stage, 'run') or ''
  end
  for place, stage in ipairs(claimed) do
    close_stage(stage, session.mesh, 'lost')
    post_inbox(runs[place], 'stage', stage_lost(stage, session, reason))
  end
  return claimed
end

-- Transfer the mesh's claims to its new session, with their tokens and accepted batches.
local function hand_over_stages(session)
  for _, stage in ipairs(redis.call('ZRANGE', CLAIMED .. session.mesh, 0, -1)) do
    if redis.call('HGET', STAGE .. stage, 'state') == 'claimed' then
      redis.call('HSET', STAGE .. stage, 'incarnation', session.incarnation)
    end
  end
end

-- Forget the mesh except for its mark, so receipts of the session count as old.
local function forget_mesh(session)
  local mesh = session.mesh
  redis.call('HDEL', SESSIONS, mesh)
  redis.call('HDEL', MESHES, mesh)
  redis.call('HDEL', MARKS, mesh .. '|grow', mesh .. '|successor', mesh .. '|lost')
  redis.call('HSET', MARKS, mesh, text(math.max(tonumber(redis.call('HGET', MARKS, mesh) or '0'), tonumber(session.incarnation))))
  redis.call('ZREM', DUE, mesh)
  redis.call('DEL', NOTIFICATIONS .. mesh)
end

-- Return all amounts of a holder to the tree; return the number of leases. The caller calls `keep_leases`.
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
