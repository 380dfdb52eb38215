-- needs: schema, wall
-- on a full server: reads only
-- Return what a mesh must know of its queued stages. Stages that are claimed, cancelled or at another mesh are left out.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2…]  stages
-- Reply     list of {what a mesh must know, as JSON; the reason why it waits; when it was queued, ms since the epoch; ms since then}

local heads, now = {}, wall_ms()
for place = 2, #ARGV do
  local state, mesh, head, reason, created = unpack(redis.call('HMGET', STAGE .. ARGV[place], 'state', 'mesh', 'head', 'reason', 'created'))
  if state == 'queued' and mesh == ARGV[1] then
    heads[#heads + 1] = { head, reason, created or '0', math.floor(now - tonumber(created or now)) }
  end
end
return heads
