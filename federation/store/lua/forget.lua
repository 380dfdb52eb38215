-- needs: schema, post, stage, queue
-- on a full server: passes
-- Drop the stages and blobs of a run, and notify meshes that its values may be deleted.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   run
-- ARGV[2]   its version; empty: it is not stored
-- ARGV[3]   number of meshes
-- ARGV[4…]  the meshes; then 'ALL': all blobs stay, or 'ONLY' and the hashes of those that stay
-- Reply     'OK' | 'STALE' when the run has another version: a late call of a coordinator that another one has replaced

local run, version, at = ARGV[1], ARGV[2], 4 + tonumber(ARGV[3])

if (redis.call('HGET', RUN .. run, 'version') or '') ~= version then
  return 'STALE'
end
for _, stage in ipairs(redis.call('SMEMBERS', STAGES_OF .. run)) do
  local mesh = redis.call('HGET', STAGE .. stage, 'mesh')
  if mesh then
    leave_queue(stage, mesh)
    end_claim(stage, mesh)
  end
  redis.call('DEL', STAGE .. stage, INPUTS .. stage)
end
redis.call('DEL', STAGES_OF .. run)
redis.call('SADD', STAGES_OF .. run, '!forgotten')  -- Stays until the run is retired: `submit` refuses late calls.
if ARGV[at] == 'ONLY' then
  local keep = {}
  for place = at + 1, #ARGV do
    keep[ARGV[place]] = true
  end
  for _, sha256 in ipairs(redis.call('HKEYS', BLOBS .. run)) do
    if not keep[sha256] then
      redis.call('HDEL', BLOBS .. run, sha256)
    end
  end
end
for place = 4, at - 1 do
  post_mail(ARGV[place], 'forget', run)
end
return 'OK'
