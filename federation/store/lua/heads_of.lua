-- needs: schema
-- on a full server: reads only
-- What a mesh must know of stages that are queued at it. Others are left out: taken, cancelled, or another mesh's.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2…]  stages
-- Reply     list of {what a mesh must know, as JSON; the reason it waits for}

local heads = {}
for place = 2, #ARGV do
  local state, mesh, head, reason = unpack(redis.call('HMGET', STAGE .. ARGV[place], 'state', 'mesh', 'head', 'reason'))
  if state == 'queued' and mesh == ARGV[1] then
    heads[#heads + 1] = { head, reason }
  end
end
return heads
