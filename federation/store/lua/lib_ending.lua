-- needs: keys, clock, session, tree, post, stage, lease
-- What goes with a session that ends: its claims are reported lost, its leases go back up the tree; or an heir takes them over.

-- A `StageLost`, as `STAGE_MESSAGES` of federation/dispatch.py reads it. The number is put in as text, see `text`.
local function stage_lost(stage, session, reason)
  return '[{"kind":"stage_lost","reason":"' .. reason .. '","stage":' .. cjson.encode(stage) .. ',"mesh":'
    .. cjson.encode(session.mesh) .. ',"incarnation":' .. session.incarnation .. '}]'
end

-- Report the claimed stages lost, and why; which they were. Runs are read first: an error must not leave half of it done.
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

-- The claims of the mesh are those of its new session from now on: under their tokens, and with the batches that were taken in.
local function hand_over_stages(session)
  for _, stage in ipairs(redis.call('ZRANGE', CLAIMED .. session.mesh, 0, -1)) do
    if redis.call('HGET', STAGE .. stage, 'state') == 'claimed' then
      redis.call('HSET', STAGE .. stage, 'incarnation', session.incarnation)
    end
  end
end

-- Nothing is known of the mesh any more but its mark: what the session held is an old receipt now.
local function forget_mesh(session)
  local mesh = session.mesh
  redis.call('HDEL', SESSIONS, mesh)
  redis.call('HDEL', MESHES, mesh)
  redis.call('HDEL', MARKS, mesh .. '|grow', mesh .. '|heir', mesh .. '|lost')
  redis.call('HSET', MARKS, mesh, text(math.max(tonumber(redis.call('HGET', MARKS, mesh) or '0'), tonumber(session.incarnation))))
  redis.call('ZREM', DUE, mesh)
  redis.call('DEL', MAIL .. mesh)
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
