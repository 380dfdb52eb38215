-- needs: keys
-- A stage's record: `state` (queued, claimed, ended, lost, cancelled), `run`, `mesh`, `spec` and `head` as JSON, `member`
-- of the ready queue, `reason` it waits for, `cancelled` (0 or 1), and of its claim `incarnation`, `token`, `batch`.

-- Close a claimed stage. What a late or repeated report is checked against stays; the bulk goes.
local function close_stage(stage, mesh, state)
  redis.call('HSET', STAGE .. stage, 'state', state)
  redis.call('HDEL', STAGE .. stage, 'spec', 'head')
  redis.call('DEL', INPUTS .. stage)
  redis.call('SREM', CLAIMED .. mesh, stage)
end
