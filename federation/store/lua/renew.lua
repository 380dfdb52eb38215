-- needs: caller
-- on a full server: passes
-- remembers its look
-- Renew a session, and with it all that it holds, where there is nothing else to do: most heartbeats are this one. It reads
-- no lease, so it costs the same whatever the mesh holds, and it leaves everything that is not plain to heartbeat.lua.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   the mesh's record, JSON
-- ARGV[7]   number of the beat: one more for each
-- Reply     {'OK', epoch, '0', mark, '1' when others wait for quota, ''}, as heartbeat.lua's; as in lib_caller;
--           {'LOOK'} when heartbeat.lua has to look: nothing was renewed

local record, beat = ARGV[6], tonumber(ARGV[7])

if why_lost(SESSION, INCARNATION, false) or beat <= SESSION.beat or learn_left() > 0 or SEEN ~= MARK_BEFORE or GROWS then
  return { 'LOOK' }
end
SESSION.beat = beat
renew(SESSION)
if redis.call('HGET', MESHES, MESH) ~= record then -- It seldom is: what is not written needs no copying to replicas and disk.
  redis.call('HSET', MESHES, MESH, record)
end
return { 'OK', EPOCH, '0', ARGV[5], others_want(MESH), '' }
