-- needs: keys, text, wall
-- Reports on use, for bills: entries of USAGE_LOG with `at` in ms, `stage`, `lease` as '<tenant>|<flavor>', `user`, and `held`: units of all
-- slots from now on, as JSON with the units as text; empty: the claim has ended. `dag/store/lua/commit.lua` adds entries with `lost`.
--
-- The stream is bounded, since nobody reads it while no coordinator runs. At the bound, beginnings and new sizes are left out and counted in
-- `usage_left_out` of META. The end of a claim is left out only if its beginning was (`uncounted` of its stage): else it would count for ever.

-- As `LOG_MAX` in `federation/usage/records.py`.
local USAGE_LOG_MAX = 200000

local function note_use(stage, lease, held, begins)
  if held == '' then
    if redis.call('HDEL', STAGE .. stage, 'uncounted') == 1 then
      return
    end
  elseif redis.call('XLEN', USAGE_LOG) >= USAGE_LOG_MAX then
    redis.call('HINCRBY', META, 'usage_left_out', 1)
    if begins then
      redis.call('HSET', STAGE .. stage, 'uncounted', '1')
    end
    return
  elseif not begins then
    redis.call('HDEL', STAGE .. stage, 'uncounted')
  end
  local run = redis.call('HGET', STAGE .. stage, 'run') or ''
  redis.call('XADD', USAGE_LOG, '*', 'at', text(wall_ms()), 'stage', stage, 'lease', lease,
    'user', redis.call('HGET', RUN .. run, 'user') or '', 'held', held)
end
