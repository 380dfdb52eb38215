-- needs: schema, wall, text
-- on a full server: reads only
-- How old the oldest queued and claimed stages of each mesh are.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   how far into a queue is looked; of the claimed, which stand in no order, at how many
-- Reply     list of {mesh, ms of the oldest that is queued, ms of the oldest that is claimed}; 0 where there is none

local now, depth = wall_ms(), tonumber(ARGV[1])

local function oldest(stages, from)
  local age = 0
  for place, member in ipairs(stages) do
    if place > depth then
      break
    end
    local since = redis.call('HGET', STAGE .. string.sub(member, from), 'since')
    age = math.max(age, since and now - tonumber(since) or 0)
  end
  return text(age)
end

local ages = {}
for _, mesh in ipairs(redis.call('HKEYS', MESHES)) do
  local queued, claimed = redis.call('ZRANGE', READY .. mesh, 0, depth - 1), redis.call('SMEMBERS', CLAIMED .. mesh)
  ages[#ages + 1] = { mesh, oldest(queued, 18), oldest(claimed, 1) }
end
return ages
