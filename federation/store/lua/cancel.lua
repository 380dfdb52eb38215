-- needs: schema, post, stage
-- on a full server: passes
-- Stop a stage: queued, it is gone at once; claimed, it is marked and its mesh told; else nothing.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   JSON list with one `StageEnded`
-- Reply     'OK'

local stage, body = ARGV[1], ARGV[2]

local state, mesh, run, member = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'run', 'member'))
if state == 'queued' then
  redis.call('ZREM', READY .. mesh, member)
  close_stage(stage, mesh, 'cancelled')
  post_inbox(run, 'stage', body)
elseif state == 'claimed' then
  redis.call('HSET', STAGE .. stage, 'cancelled', '1')
  post_mail(mesh, 'cancel', stage)
end
return 'OK'
