-- needs: schema
-- on a full server: reads only
-- Which stages were sent to a mesh and are of runs that were not forgotten. Of any other mesh's it tells nothing.
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
