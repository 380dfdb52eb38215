-- needs: ending
-- on a full server: passes
-- End a session in good order: nothing of it runs any more, and people no longer see the mesh. Harmless when it is not the mesh's last.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- Reply     {'OK'}

local session = session_of(ARGV[1])
if not session or session.incarnation ~= ARGV[2] then
  return { 'OK' }
end
lose_stages(session)
local freed = free_all(session.mesh, 'leave')
keep_leases()
drop_wants(session.mesh)
redis.call('HDEL', SESSIONS, session.mesh)
redis.call('HDEL', MESHES, session.mesh)
redis.call('HDEL', MARKS, session.mesh .. '|grow', session.mesh .. '|heir', session.mesh .. '|lost')
local mark = tonumber(redis.call('HGET', MARKS, session.mesh) or '0') -- It stays: what the session held is an old receipt now.
redis.call('HSET', MARKS, session.mesh, text(math.max(mark, tonumber(session.incarnation))))
redis.call('ZREM', DUE, session.mesh)
if freed > 0 then
  wake_wanting()
end
return { 'OK' }
