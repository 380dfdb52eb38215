-- needs: schema, wall, text
-- on a full server: reads only
-- How old the oldest queued and claimed stages of each mesh are, and the youngest claimed one.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   how far into a queue is looked
-- Reply     list of {mesh, ms of the oldest that is queued, of the oldest and of the youngest that is claimed}; 0 where there is none

local now, depth = wall_ms(), tonumber(ARGV[1])

local function age_of(since)
  return since and math.max(0, now - tonumber(since)) or 0
end

local ages = {}
for _, mesh in ipairs(redis.call('HKEYS', MESHES)) do
  local queued = 0
  for _, member in ipairs(redis.call('ZRANGE', READY .. mesh, 0, depth - 1)) do
    queued = math.max(queued, age_of(redis.call('HGET', STAGE .. string.sub(member, 18), 'since')))
  end
  local _, oldest = unpack(redis.call('ZRANGE', CLAIMED .. mesh, 0, 0, 'WITHSCORES'))
  local _, youngest = unpack(redis.call('ZRANGE', CLAIMED .. mesh, -1, -1, 'WITHSCORES'))
  ages[#ages + 1] = { mesh, text(queued), text(age_of(oldest)), text(age_of(youngest)) }
end
return ages
