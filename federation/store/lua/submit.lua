-- needs: schema, post, text, wall, queue
-- Queue a stage at a mesh, once.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   stage
-- ARGV[3]   run
-- ARGV[4]   the stage's spec, JSON
-- ARGV[5]   what a mesh must know to decide about it, JSON
-- ARGV[6]   priority, negated: the lowest comes first
-- ARGV[7]   limit from its claim to its take-back, ms; empty: none
-- ARGV[8…9] its kind and width, see lib_queue
-- Reply     1 | 0 when the id was submitted before

local mesh, stage, run, spec, head, order = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

if redis.call('EXISTS', STAGE .. stage) == 1 or redis.call('SISMEMBER', STAGES_OF .. run, '!forgotten') == 1 then
  return 0
end
local now = text(wall_ms())
-- Members of equal score are ordered by their bytes: the padded arrival first.
local member = string.format('%016.0f', redis.call('HINCRBY', META, 'arrivals', 1)) .. ':' .. stage
redis.call('HSET', STAGE .. stage, 'state', 'queued', 'run', run, 'mesh', mesh, 'spec', spec, 'head', head,
  'reason', 'WAITING_IN_QUEUE', 'cancelled', '0', 'since', now, 'created', now, 'deadline', ARGV[7])
enter_queue(stage, mesh, text(order), member, ARGV[8], ARGV[9])
redis.call('SADD', STAGES_OF .. run, stage)
post_mail(mesh, 'stage', stage)
return 1
