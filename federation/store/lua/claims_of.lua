-- needs: session
-- on a full server: passes
-- Return the open claims of a session; nothing when the session has ended.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- Reply     list of {token, spec as JSON, '1' when it must stop else '0', inputs (node, JSON, …)}

local mesh, incarnation = ARGV[1], ARGV[2]

local claims = {}
if is_current(session_of(mesh), incarnation) then
  for _, stage in ipairs(redis.call('ZRANGE', CLAIMED .. mesh, 0, -1)) do
    local token, spec, cancelled = unpack(redis.call('HMGET', STAGE .. stage, 'token', 'spec', 'cancelled'))
    claims[#claims + 1] = { token, spec, cancelled, redis.call('HGETALL', INPUTS .. stage) }
  end
end
return claims
