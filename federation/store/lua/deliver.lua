-- needs: schema, post
-- Give a stage an input, once, and tell its mesh.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   node
-- ARGV[3]   where its value is, JSON; null when it will not come
-- Reply     'OK'

local stage, node, value = ARGV[1], ARGV[2], ARGV[3]

local state, mesh = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh'))
if (state == 'queued' or state == 'claimed') and redis.call('HSETNX', INPUTS .. stage, node, value) == 1 then
  post_mail(mesh, 'input', stage)
end
return 'OK'
