-- needs: session
-- Take a queued stage under a live session and a lease with the stage's id; the claim gets the next fencing token.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   incarnation
-- ARGV[3]   stage
-- Reply     {'CLAIMED', token, spec as JSON, '1' when it is to be stopped else '0', inputs (node, JSON, …)}
--           {'GONE'} when it is not queued at this mesh any more | {'SESSION_LOST'}

local mesh, incarnation, stage = ARGV[1], ARGV[2], ARGV[3]

if not is_live(session_of(mesh), incarnation) then
  return { 'SESSION_LOST' }
end
local state, at, member, holder, token, spec, cancelled =
  unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'member', 'incarnation', 'token', 'spec', 'cancelled'))
local mine = state == 'claimed' and holder == incarnation
if at ~= mesh or not (state == 'queued' or mine) then
  return { 'GONE' }
end
if redis.call('HEXISTS', LEASES .. mesh, stage) == 0 then
  return { 'SESSION_LOST' }
end
if not mine then
  token = next_token()
  redis.call('HSET', STAGE .. stage, 'state', 'claimed', 'incarnation', incarnation, 'token', token, 'batch', '0')
  redis.call('ZREM', READY .. mesh, member)
  redis.call('SADD', CLAIMED .. mesh, stage)
end
return { 'CLAIMED', token, spec, cancelled, redis.call('HGETALL', INPUTS .. stage) }
