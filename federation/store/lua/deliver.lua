-- needs: schema, post
-- Deliver an input to a stage, once, and notify its mesh.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   node
-- ARGV[3]   place of its value, JSON; null when it will never come
-- Reply     'OK'

local stage, node, value = ARGV[1], ARGV[2], ARGV[3]

local state, mesh = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh'))
if (state == 'queued' or state == 'claimed') and redis.call('HSETNX', INPUTS .. stage, node, value) == 1 then
  post_mail(mesh, 'input', stage)
end
return 'OK'
