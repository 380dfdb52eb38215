-- needs: schema, sections, backlog, feed
-- Write one step of a run, atomically, if no other caller has written since this one loaded the run.
--
-- An ended run goes into ENDED. It stays in ACTIVE until a coordinator has carried out its last decisions and settles it. One whose values
-- are kept for a while goes into TO_FORGET. A step that leaves an ended run open resumes it: it is active again, its dead letters go, and
-- the inbox gets `resumed`. The nodes of the run keep the signals that reached them; others may be sent anew, with any value.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   version of the run that the step is based on
-- ARGV[3]   number of the last event before the step
-- ARGV[4]   when the run ended, milliseconds since the epoch; empty while it has not
-- ARGV[5]   events of the step as JSON; empty when there are none
-- ARGV[6]   number of the last event after the step: the id of the entry
-- ARGV[7…8] most open runs and bytes of a tenant with its descendants: a resumed run meets the limits of a new one
-- ARGV[9]   largest share of the server's memory limit in use, percent
-- ARGV[10…] sections: fields of the run, the new version among them; changed rows of nodes; changed stages (each name, value, …);
--           dead letters (node, JSON, …); their names and times (name, ms, …); lost work (stage, ms, JSON, …)
-- Reply     'COMMITTED' | 'STALE' when the stored version differs or there is no such run | 'GAP' when the number of the last
--           stored event differs | 'BUSY' when the end of a run to resume is still being carried out, or
--           when it is being removed
--           {'FULL', …} | {'MEMORY'}: `no_room_for` of a run to resume

local run, version, seq, ended_ms, events, last_seq = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local stored = redis.call('HMGET', RUN .. run, 'version', 'seq', 'tenant')
if stored[1] ~= version then
  return 'STALE'
end
if stored[2] ~= seq then
  return 'GAP'
end

local is_resumed = ended_ms == '' and redis.call('ZSCORE', ENDED, run)
if is_resumed then
  local is_forgetting = redis.call('HGET', RUN .. run, 'forgotten') == '1' and redis.call('ZSCORE', TO_FORGET, run)
  local is_removing = redis.call('HEXISTS', RUN .. run, 'removing') == 1
  if is_forgetting or is_removing or redis.call('SISMEMBER', ACTIVE, run) == 1 then
    return 'BUSY'
  end
  local tenant, weight = unpack(redis.call('HMGET', RUN .. run, 'tenant', 'weight'))
  local refusal = no_room_for(tenant, weight, ARGV[7], ARGV[8], ARGV[9])
  if refusal then
    return refusal
  end
  redis.call('ZREM', ENDED, run)
  redis.call('ZREM', TO_FORGET, run)
  redis.call('SREM', STAGES_OF .. run, '!forgotten')
  redis.call('SADD', ACTIVE, run)
  count_open(tenant, 1, weight)
  for _, node in ipairs(redis.call('HKEYS', DEAD_OF .. run)) do
    redis.call('ZREM', DEAD, run .. ':' .. node)
  end
  redis.call('DEL', DEAD_OF .. run)
  for _, field in ipairs(redis.call('HKEYS', RUN .. run)) do
    if string.sub(field, 1, 7) == 'signal.' then
      redis.call('HDEL', RUN .. run, field)
    end
  end
  redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'resumed', 'body', '')
end

local USAGE_LOG_MAX = 200000 -- As in `lib_usage.lua` of the ledger.
local at = 10
for _, hash in ipairs({RUN, NODES, STAGES}) do
  at = write_rows(hash .. run, at)
end
if events ~= '' then
  redis.call('XADD', EVENTS .. run, last_seq .. '-0', 'events', events)
end
local first, last
first, last, at = section(write_rows(DEAD_OF .. run, at))
for place = first, last, 2 do
  redis.call('ZADD', DEAD, ARGV[place + 1], ARGV[place])
end
first, last = section(at)
for place = first, last, 3 do -- As `lib_usage.lua` of the ledger reports what claims hold.
  local lease = redis.call('HGET', STAGE .. ARGV[place], 'lease')
  if lease and lease ~= '|' and redis.call('XLEN', USAGE_LOG) >= USAGE_LOG_MAX then
    redis.call('HINCRBY', META, 'usage_left_out', 1)
  elseif lease and lease ~= '|' then
    redis.call('XADD', USAGE_LOG, '*', 'at', ARGV[place + 1], 'stage', ARGV[place], 'lease', lease,
      'user', redis.call('HGET', RUN .. run, 'user') or '', 'lost', ARGV[place + 2])
  end
end
if ended_ms ~= '' then
  redis.call('ZADD', ENDED, ended_ms, run)
  local forget_ms = redis.call('HGET', RUN .. run, 'forget_ms')
  if forget_ms and forget_ms ~= '0' and redis.call('HGET', RUN .. run, 'forgotten') ~= '1' then
    redis.call('ZADD', TO_FORGET, forget_ms, run)
  end
end
announce(run, stored[3], ended_ms ~= '' and '1' or '')
return 'COMMITTED'
