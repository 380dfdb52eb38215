-- needs: schema, post, stage, queue
-- on a full server: passes
-- Drop the stages of a run, and notify meshes that its values may be deleted.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   run
-- ARGV[2…]  meshes
-- Reply     'OK'

local run = ARGV[1]

for _, stage in ipairs(redis.call('SMEMBERS', STAGES_OF .. run)) do
  local mesh = redis.call('HGET', STAGE .. stage, 'mesh')
  if mesh then
    leave_queue(stage, mesh)
    end_claim(stage, mesh)
  end
  redis.call('DEL', STAGE .. stage, INPUTS .. stage)
end
redis.call('DEL', STAGES_OF .. run)
redis.call('SADD', STAGES_OF .. run, '!forgotten')  -- Stays until the run is retired: `submit` refuses late calls.
for place = 2, #ARGV do
  post_mail(ARGV[place], 'forget', run)
end
return 'OK'
