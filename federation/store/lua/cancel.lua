-- needs: schema, post, stage
-- on a full server: passes
-- Cancel a stage: a queued stage ends at once; a claimed stage is marked and its mesh notified; other stages stay.
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
