-- needs: clock, post, stage
-- on a full server: passes
-- End the claims on stages that exceeded their deadline. Nothing while the ledger recovers, because the lease clock has a gap.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   most claims to end
-- Reply     {'OK', list of stages}

local taken = {}
if recovery_left() == 0 then
  for _, stage in ipairs(redis.call('ZRANGEBYSCORE', OVERDUE, '-inf', text(LT), 'LIMIT', '0', ARGV[1])) do
    local state, mesh, run, incarnation = unpack(redis.call('HMGET', STAGE .. stage, 'state', 'mesh', 'run', 'incarnation'))
    if state == 'claimed' then
      close_stage(stage, mesh, 'lost')
      post_inbox(run, 'stage', '[{"kind":"stage_lost","reason":"DEADLINE_EXCEEDED","stage":' .. cjson.encode(stage) .. ',"mesh":'
        .. cjson.encode(mesh) .. ',"incarnation":' .. incarnation .. '}]')
      post_mail(mesh, 'cancel', stage)
      taken[#taken + 1] = stage
    end
    redis.call('ZREM', OVERDUE, stage)
  end
end
return { 'OK', taken }
