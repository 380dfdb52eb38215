-- needs: tree, clock
-- Note a part of a tree that is to be put in force by `configure`. Nobody sees it before; who has it alone may note more of it.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   name of the draft, which is nobody else's
-- ARGV[2]   for how long it is kept from now on when nothing comes of it; s
-- ARGV[3…]  for each row of TREE: name, row
-- Reply     'OK'

local draft = DRAFT .. ARGV[1]
in_pieces('HSET', draft, { unpack(ARGV, 3) })
redis.call('EXPIRE', draft, ARGV[2])
return 'OK'
