-- needs: keys, text, wall
-- Reports on use, for bills: entries of USAGE_LOG with `at` in ms, `stage`, `lease` as '<tenant>|<flavor>', `user`, and `held`: units of all
-- slots from now on, as JSON with the units as text; empty: the claim has ended. `dag/store/lua/commit.lua` adds entries with `lost`.

local function note_use(stage, lease, held)
  local run = redis.call('HGET', STAGE .. stage, 'run') or ''
  redis.call('XADD', USAGE_LOG, '*', 'at', text(wall_ms()), 'stage', stage, 'lease', lease,
    'user', redis.call('HGET', RUN .. run, 'user') or '', 'held', held)
end
