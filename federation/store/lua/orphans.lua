-- needs: schema
-- on a full server: reads only
-- Find inconsistencies in these meshes' indexes, or in these stages' records. Changes nothing.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   'indexes' or 'records'
-- ARGV[2…]  meshes, or stages
-- Reply     list of {kind, stage, mesh, detail}

local found = {}
local function send(kind, stage, mesh, detail)
  found[#found + 1] = { kind, stage, mesh, detail }
end

local function check_entry(stage, mesh, wanted, index)
  local state, at, incarnation = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'incarnation'))
  if not state then
    send('INDEX_WITHOUT_RECORD', stage, mesh, 'named as ' .. index)
  elseif state ~= wanted or at ~= mesh then
    send('INDEX_DISAGREES', stage, mesh, 'named as ' .. index .. '; it is ' .. state .. ' at ' .. at)
  elseif wanted == 'claimed' then
    local holder, expires = string.match(redis.call('HGET', SESSIONS, mesh) or '', '^(%d+)|(%d+)|')
    if holder ~= incarnation or expires == '0' then
      send('CLAIMED_WITHOUT_SESSION', stage, mesh, 'claimed by session ' .. incarnation)
    end
  end
end

for place = 2, #ARGV do
  if ARGV[1] == 'indexes' then
    local mesh = ARGV[place]
    for _, member in ipairs(redis.call('ZRANGE', READY .. mesh, 0, -1)) do
      check_entry(string.sub(member, 18), mesh, 'queued', 'queued')
    end
    for _, stage in ipairs(redis.call('ZRANGE', CLAIMED .. mesh, 0, -1)) do
      check_entry(stage, mesh, 'claimed', 'claimed')
    end
  else
    local stage = ARGV[place]
    local state, mesh, member = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'member'))
    if state == 'queued' and not redis.call('ZSCORE', READY .. mesh, member) then
      send('RECORD_WITHOUT_INDEX', stage, mesh, 'it is queued')
    elseif state == 'claimed' and not redis.call('ZSCORE', CLAIMED .. mesh, stage) then
      send('RECORD_WITHOUT_INDEX', stage, mesh, 'it is claimed')
    end
  end
end
return found
