-- needs: session, post
-- Record why queued stages wait; only changes are reported. Calls of an ended session change nothing.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   reason
-- ARGV[4…]  for each stage: its id; JSON list with one `StageWaiting`
-- Reply     'OK'

local mesh, incarnation, reason = ARGV[1], ARGV[2], ARGV[3]

if not is_current(session_of(mesh), incarnation) then
  return 'OK'
end
for place = 4, #ARGV, 2 do
  local stage, body = ARGV[place], ARGV[place + 1]
  local state, at, run, before = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'run', 'reason'))
  if state == 'queued' and at == mesh and before ~= reason then
    redis.call('HSET', STAGE .. stage, 'reason', reason)
    post_inbox(run, 'stage', body)
  end
end
return 'OK'
