-- needs: schema
-- on a full server: reads only
-- Return what a mesh must know of its queued stages. Stages that are claimed, cancelled or at another mesh are left out.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2…]  stages
-- Reply     list of {what a mesh must know, as JSON; the reason why it waits}

local heads = {}
for place = 2, #ARGV do
  local state, mesh, head, reason = unpack(redis.call('HMGET', STAGE .. ARGV[place], 'state', 'mesh', 'head', 'reason'))
  if state == 'queued' and mesh == ARGV[1] then
    heads[#heads + 1] = { head, reason }
  end
end
return heads
