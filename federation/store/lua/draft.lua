-- needs: tree, clock
-- Store a part of a tree that `configure` puts into force later. Only the caller knows the draft and may add further parts.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   unique name of the draft
-- ARGV[2]   time to live of the draft without further parts; s
-- ARGV[3…]  for each row of TREE: name, row
-- Reply     'OK'

local draft = DRAFT .. ARGV[1]
in_pieces('HSET', draft, { unpack(ARGV, 3) })
redis.call('EXPIRE', draft, ARGV[2])
return 'OK'
