-- needs: schema
-- on a full server: reads only
-- Which stages are queued at a mesh, the next one first: all of them, and nothing else of them, so that a long queue is looked through at once.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   mesh
-- Reply     list of members: the padded arrival, `:`, the stage

return redis.call('ZRANGE', READY .. ARGV[1], 0, -1)
