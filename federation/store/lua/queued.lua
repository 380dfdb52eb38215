-- needs: schema
-- on a full server: reads only
-- Return the ids of all stages queued at a mesh, the next one first. Ids alone keep the reply short for a long queue.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- Reply     list of members: the padded arrival, `:`, the stage

return redis.call('ZRANGE', READY .. ARGV[1], 0, -1)
