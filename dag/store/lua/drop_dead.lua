-- needs: schema
-- on a full server: passes
-- Delete dead letters.
--
-- KEYS      `scripted_keys`
-- ARGV[1…]  run, node, run, node, …
-- Reply     number of deleted letters

local dropped = 0
for place = 1, #ARGV, 2 do
  dropped = dropped + redis.call('HDEL', DEAD_OF .. ARGV[place], ARGV[place + 1])
  redis.call('ZREM', DEAD, ARGV[place] .. ':' .. ARGV[place + 1])
end
return dropped
