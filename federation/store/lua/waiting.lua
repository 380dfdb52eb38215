-- needs: schema
-- on a full server: reads only
-- Return the queued stages of a mesh, the next one first.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- ARGV[2]   most stages to return, at least 1
-- Reply     list of {what a mesh must know, as JSON; the reason why it waits; when it was queued, ms since the epoch}

local heads = {}
for _, member in ipairs(redis.call('ZRANGE', READY .. ARGV[1], 0, tonumber(ARGV[2]) - 1)) do
  local stage = string.sub(member, 18)
  heads[#heads + 1] = redis.call('HMGET', STAGE .. stage, 'head', 'reason', 'created')
end
return heads
