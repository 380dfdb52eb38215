-- needs: schema, sections, backlog, stage, queue, feed
-- on a full server: passes
-- Delete an ended run with all its keys, also stages that no coordinator has forgotten.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   only if it ended before this, milliseconds since the epoch
-- ARGV[3]   1: only if it is settled
-- ARGV[4…]  sections: the tenant and its ancestors; names of the lists by label
-- Reply     1 | 0 when it has not ended, ended later, is not settled, or is gone

local run, before_ms = ARGV[1], tonumber(ARGV[2])

local ended_ms = redis.call('ZSCORE', ENDED, run)
if not ended_ms or tonumber(ended_ms) >= before_ms or (ARGV[3] == '1' and redis.call('SISMEMBER', ACTIVE, run) == 1) then
  return 0
end

local first, last, at = section(4)
for place = first, last do
  redis.call('ZREM', RUNS_OF .. ARGV[place], run)
end
first, last = section(at)
for place = first, last do
  redis.call('ZREM', LABELLED .. ARGV[place], run)
end
for _, stage in ipairs(redis.call('SMEMBERS', STAGES_OF .. run)) do
  local mesh = redis.call('HGET', STAGE .. stage, 'mesh')
  if mesh then
    leave_queue(stage, mesh)
    end_claim(stage, mesh)
  end
  redis.call('UNLINK', STAGE .. stage, INPUTS .. stage)
end
close_run(run)
local tenant, key = unpack(redis.call('HMGET', RUN .. run, 'tenant', 'key'))
if key then
  redis.call('HDEL', IDEMPOTENCY .. tenant, key)
end
for _, node in ipairs(redis.call('HKEYS', DEAD_OF .. run)) do
  redis.call('ZREM', DEAD, run .. ':' .. node)
end
redis.call('UNLINK', DEAD_OF .. run)
redis.call('UNLINK', RUN .. run, NODES .. run, STAGES .. run, EVENTS .. run, BLOBS .. run, STAGES_OF .. run)
redis.call('UNLINK', RUN_LOG .. run, RUN_LOG_USE .. run)
redis.call('ZREM', ENDED, run)
redis.call('ZREM', TO_FORGET, run)
if tenant then
  announce(run, tenant, '1')
end
return 1
