-- needs: schema, wall, text
-- on a full server: reads only
-- Return the ages of the oldest queued and claimed stages of each mesh, and of the youngest claimed one.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   number of entries of a queue to search
-- Reply     list of {mesh, ms of the oldest queued, of the oldest and of the youngest claimed stage}; 0 without such a stage

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
