-- needs: schema, post, stage, queue
-- on a full server: passes
-- Cancel a stage: a queued stage ends at once; a claimed stage is marked and its mesh notified; other stages stay.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   JSON list with one `StageEnded`
-- Reply     'OK'

local stage, body = ARGV[1], ARGV[2]

local state, mesh, run = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'run'))
if state == 'queued' then
  leave_queue(stage, mesh)
  close_stage(stage, mesh, 'cancelled')
  post_inbox(run, 'stage', body)
elseif state == 'claimed' then
  mark_cancelled(stage, mesh)
  post_mail(mesh, 'cancel', stage)
end
return 'OK'
