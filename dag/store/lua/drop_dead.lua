-- needs: schema
-- on a full server: passes
-- Take dead letters away.
--
-- KEYS      `scripted_keys`
-- ARGV[1…]  run, node, run, node, …
-- Reply     how many there were

local dropped = 0
for place = 1, #ARGV, 2 do
  dropped = dropped + redis.call('HDEL', DEAD_OF .. ARGV[place], ARGV[place + 1])
  redis.call('ZREM', DEAD, ARGV[place] .. ':' .. ARGV[place + 1])
end
return dropped
