-- needs: keys, text, usage
-- A stage's record: `state` (queued, claimed, ended, lost, cancelled), `since` when by the server's clock, `created` when it was queued,
-- `run`, `mesh`, `spec` and `head` as JSON, `member`, `kind` and `width` (see lib_queue), `reason` why it waits, `cancelled` (0 or 1),
-- `deadline` in ms from its claim or empty; and of its claim `incarnation`, `token`, `batch`, `lease`, `lease_token`, and `takes`: units of the lease
-- for all its slots, as JSON with the units as text, because cjson would round numbers.
--
-- RUNNING has a row for each claimed stage of a mesh that a lease pays for:
-- '<1 when cancelled, else 0>|<token>|<since>|<created>|<when it last saved a checkpoint, or empty>|<priority>:<slots>|<tenant>|<flavor>' and
-- then for each resource '|<resource>|<units of all slots>'.

-- Count what a claim uses of its lease: `sign` 1 for a new claim, -1 for an ended one.
local function count_taken(mesh, lease, takes, sign)
  for resource, units in pairs(takes) do
    if redis.call('HINCRBY', TAKEN .. mesh, lease .. '|' .. resource, text(sign * tonumber(units))) <= 0 then
      redis.call('HDEL', TAKEN .. mesh, lease .. '|' .. resource)
    end
  end
end

-- Remove the stage from the indexes of claimed stages.
local function end_claim(stage, mesh)
  local lease, takes = unpack(redis.call('HMGET', STAGE .. stage, 'lease', 'takes'))
  if redis.call('ZREM', CLAIMED .. mesh, stage) == 1 and takes then
    count_taken(mesh, lease, cjson.decode(takes), -1)
    note_use(stage, lease, '')
  end
  redis.call('ZREM', OVERDUE, stage)
  redis.call('HDEL', RUNNING .. mesh, stage)
end

-- Mark a claimed stage as cancelled by its user.
local function mark_cancelled(stage, mesh)
  redis.call('HSET', STAGE .. stage, 'cancelled', '1')
  local row = redis.call('HGET', RUNNING .. mesh, stage)
  if row then
    redis.call('HSET', RUNNING .. mesh, stage, '1' .. string.sub(row, 2))
  end
end

-- Note that a node of a claimed stage has saved a checkpoint.
local function mark_saved(stage, mesh, now_ms)
  local row = redis.call('HGET', RUNNING .. mesh, stage)
  if row then
    local before, after = string.match(row, '^([^|]*|[^|]*|[^|]*|[^|]*|)[^|]*(|.*)$')
    redis.call('HSET', RUNNING .. mesh, stage, before .. text(now_ms) .. after)
  end
end

-- Charge the claim for this many slots from now on.
local function resize_claim(stage, mesh, slots)
  local lease, takes, head = unpack(redis.call('HMGET', STAGE .. stage, 'lease', 'takes', 'head'))
  local row = redis.call('HGET', RUNNING .. mesh, stage)
  if not (takes and row) then
    return
  end
  local amounts = {}
  local before, priority, lease_field = string.match(row, '^(' .. string.rep('[^|]*|', 5) .. ')([^|:]*)[^|]*(|[^|]*|[^|]*)')
  local parts = { before .. priority .. ':' .. text(slots) .. lease_field }
  for resource, units in pairs(cjson.decode(head).slot) do
    amounts[resource] = text(slots * units)
    parts[#parts + 1], parts[#parts + 2] = resource, amounts[resource]
  end
  count_taken(mesh, lease, cjson.decode(takes), -1)
  count_taken(mesh, lease, amounts, 1)
  local held = cjson.encode(amounts)
  redis.call('HSET', STAGE .. stage, 'takes', held)
  redis.call('HSET', RUNNING .. mesh, stage, table.concat(parts, '|'))
  note_use(stage, lease, held)
end

-- Close a claimed stage. Keep what late or repeated reports are checked against; drop the rest.
local function close_stage(stage, mesh, state)
  end_claim(stage, mesh)
  redis.call('HSET', STAGE .. stage, 'state', state)
  redis.call('HDEL', STAGE .. stage, 'spec', 'head', 'takes')
  redis.call('DEL', INPUTS .. stage)
end
