-- needs: keys, sections
-- Remove an ended run with everything that belongs to it, also stages that nobody came to forget.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   only if it ended before this, milliseconds since the epoch
-- ARGV[3…]  section: the tenant and all above it
-- Reply     1 | 0 when it has not ended, ended later, or is gone

local run, before_ms = ARGV[1], tonumber(ARGV[2])

local ended_ms = redis.call('ZSCORE', ENDED, run)
if not ended_ms or tonumber(ended_ms) >= before_ms then
  return 0
end

local first, last = section(3)
for place = first, last do
  redis.call('ZREM', RUNS_OF .. ARGV[place], run)
end
for _, stage in ipairs(redis.call('SMEMBERS', STAGES_OF .. run)) do
  local mesh, member = unpack(redis.call('HMGET', STAGE .. stage, 'mesh', 'member'))
  if mesh and member then
    redis.call('ZREM', READY .. mesh, member)
    redis.call('SREM', CLAIMED .. mesh, stage)
  end
  redis.call('UNLINK', STAGE .. stage, INPUTS .. stage)
end
redis.call('UNLINK', RUN .. run, NODES .. run, STAGES .. run, EVENTS .. run, BLOBS .. run, STAGES_OF .. run)
redis.call('ZREM', ENDED, run)
redis.call('SREM', ACTIVE, run)
return 1
