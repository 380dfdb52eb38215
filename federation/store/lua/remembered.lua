-- needs: schema
-- on a full server: reads only
-- Return which stages were sent to this mesh and belong to runs that are not forgotten. Stages of other meshes are left out.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2…]  stages
-- Reply     list of stages

local known = {}
for place = 2, #ARGV do
  if redis.call('HGET', STAGE .. ARGV[place], 'mesh') == ARGV[1] then
    known[#known + 1] = ARGV[place]
  end
end
return known
