-- needs: keys, text
-- A stage's record: `state` (queued, claimed, ended, lost, cancelled), `since` when by the server's clock, `run`, `mesh`,
-- `spec` and `head` as JSON, `member` of the ready queue, `reason` it waits for, `cancelled` (0 or 1), `deadline` in ms from its
-- claim or empty, and of its claim `incarnation`, `token`, `batch`, `lease`, `lease_token`, and `takes`: what one slot of it
-- takes of the lease, JSON with the units as text, which cjson would round.

-- Count what a claim takes of its lease: `sign` 1 when it is made, -1 when it ends.
local function count_taken(mesh, lease, takes, sign)
  for resource, units in pairs(takes) do
    if redis.call('HINCRBY', TAKEN .. mesh, lease .. '|' .. resource, text(sign * tonumber(units))) <= 0 then
      redis.call('HDEL', TAKEN .. mesh, lease .. '|' .. resource)
    end
  end
end

-- Take the stage off the lists of what is claimed.
local function end_claim(stage, mesh)
  local lease, takes = unpack(redis.call('HMGET', STAGE .. stage, 'lease', 'takes'))
  if redis.call('ZREM', CLAIMED .. mesh, stage) == 1 and takes then
    count_taken(mesh, lease, cjson.decode(takes), -1)
  end
  redis.call('ZREM', OVERDUE, stage)
end

-- Close a claimed stage. What a late or repeated report is checked against stays; the bulk goes.
local function close_stage(stage, mesh, state)
  end_claim(stage, mesh)
  redis.call('HSET', STAGE .. stage, 'state', state)
  redis.call('HDEL', STAGE .. stage, 'spec', 'head', 'takes')
  redis.call('DEL', INPUTS .. stage)
end
