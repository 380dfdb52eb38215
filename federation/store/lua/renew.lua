-- needs: caller
-- on a full server: passes
-- remembers its look
-- Renew a session with all its leases when there is nothing else to do, as in most heartbeats. The script reads no lease, so it costs the
-- same whatever the mesh holds; it leaves all other cases to heartbeat.lua.
--
-- KEYS, ARGV[1…5]   as in lib_caller
-- ARGV[6]   the mesh's record, JSON
-- ARGV[7]   number of the heartbeat, counting up by one
-- Reply     {'OK', epoch, '0', mark, '1' when others wait for quota, ''}, as heartbeat.lua's; as in lib_caller;
--           {'LOOK'} when heartbeat.lua must run: nothing was renewed

local record, heartbeat_number = ARGV[6], tonumber(ARGV[7])

if why_lost(SESSION, INCARNATION, false) or heartbeat_number <= SESSION.heartbeat_number or recovery_left() > 0 or SEEN ~= MARK_BEFORE or GROWS then
  return { 'LOOK' }
end
SESSION.heartbeat_number = heartbeat_number
renew(SESSION)
if redis.call('HGET', MESHES, MESH) ~= record then -- Rarely true: an unwritten record needs no copy to replicas and disk.
  redis.call('HSET', MESHES, MESH, record)
end
return { 'OK', EPOCH, '0', ARGV[5], others_wait(MESH), '' }
