-- needs: keys, text, clock
-- on a full server: passes
-- Become the planner, or renew it. The election only saves work: two planners cannot grant too much.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   name
-- ARGV[2]   term, ms
-- Reply     {'OK', token} | {'HELD', name of the present planner}

local holder, token, expires = unpack(redis.call('HMGET', PLAN, 'holder', 'token', 'expires'))
local is_held = expires and tonumber(expires) > LT
if is_held and holder ~= ARGV[1] then
  return { 'HELD', holder }
end
if not is_held then
  token = text(next_token())
  keep_token()
end
redis.call('HSET', PLAN, 'holder', ARGV[1], 'token', token, 'expires', text(LT + tonumber(ARGV[2])))
return { 'OK', token }
