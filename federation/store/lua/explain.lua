-- needs: session, post
-- Say why a queued stage waits; only a change is told. The word of a session that has ended changes nothing.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   stage
-- ARGV[4]   reason
-- ARGV[5]   JSON list with one `StageWaiting`
-- Reply     'OK'

local mesh, incarnation, stage, reason, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if not is_current(session_of(mesh), incarnation) then
  return 'OK'
end
local state, at, run, before = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'run', 'reason'))
if state == 'queued' and at == mesh and before ~= reason then
  redis.call('HSET', STAGE .. stage, 'reason', reason)
  post_inbox(run, 'stage', body)
end
return 'OK'
