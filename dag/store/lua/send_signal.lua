-- needs: schema
-- on a full server: passes
-- Keep the value of a signal with the run and put `signal` into the inbox, unless the run has ended. The first value of a name counts.
-- The run has a field `signal.NAME` with its hash. A repeated value is posted again: a node that was added since may wait for it.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   SHA-256 of the value
-- ARGV[3]   the value, JSON
-- ARGV[4]   the entry: name and reference to the value
-- ARGV[5]   name
-- Reply     'SENT' | 'REPEATED' | 'CONFLICT' when another value was sent before | 'ENDED' | 'UNKNOWN'

local run, sha256, value, entry, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('EXISTS', RUN .. run) == 0 then
  return 'UNKNOWN'
end
if redis.call('ZSCORE', ENDED, run) then
  return 'ENDED'
end
local first = redis.call('HGET', RUN .. run, 'signal.' .. name)
if first and first ~= sha256 then
  return 'CONFLICT'
end
redis.call('HSET', RUN .. run, 'signal.' .. name, sha256)
redis.call('HSETNX', BLOBS .. run, sha256, value)
redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'signal', 'body', entry)
return first and 'REPEATED' or 'SENT'
