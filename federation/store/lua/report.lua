-- needs: schema, text, wall, post, stage
-- Put a batch of messages into the inbox, once, under the current claim only, whose lease was not revoked with `hard`.
--
-- A batch that was accepted already is dropped before the claim is checked: when the reply to the last batch of a stage was lost, the
-- repeated call finds the claim ended by the first one.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   mesh
-- ARGV[3]   incarnation
-- ARGV[4]   token of the claim
-- ARGV[5]   batch: counts up from 1 per claim
-- ARGV[6]   JSON list of stage messages; '' when there are none
-- ARGV[7]   state of the stage after the batch: 'claimed', 'ended' or 'lost'
-- ARGV[8]   number of the mesh's previous batch, as the store has replied; '0' when unknown
-- Reply     'OK' | 'STALE' | 'GAP' when the previous batch is lost: later batches must not hide that

local stage, mesh, incarnation, token, batch, body, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]

local run, at, holder, current, state, last, lease, lease_token =
  unpack(redis.call('HMGET', STAGE .. stage, 'run', 'mesh', 'incarnation', 'token', 'state', 'batch', 'lease', 'lease_token'))
if at ~= mesh or holder ~= incarnation or current ~= token then
  return 'STALE'
end
if batch <= tonumber(last) then
  return 'OK'
end
if state ~= 'claimed' then
  return 'STALE'
end
local row = lease and redis.call('HGET', LEASES .. mesh, lease)
if row and lease_token ~= '0' and after ~= 'lost' and string.match(row, '^%d+') ~= lease_token then
  return 'STALE'
end
if tonumber(last) < tonumber(ARGV[8]) then
  return 'GAP'
end
redis.call('HSET', STAGE .. stage, 'batch', text(batch))
if body ~= '' then
  post_inbox(run, 'stage', body)
  if string.find(body, '"kind":"node_checkpoint"', 1, true) then  -- Within a JSON text the quotes would be escaped.
    mark_saved(stage, mesh, wall_ms())
  end
  if string.find(body, '"kind":"stage_resized"', 1, true) then
    local slots
    for _, message in ipairs(cjson.decode(body)) do
      slots = message.kind == 'stage_resized' and message.slots or slots
    end
    resize_claim(stage, mesh, slots)
  end
end
if after ~= 'claimed' then
  close_stage(stage, mesh, after)
end
return 'OK'
