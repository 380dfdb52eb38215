-- needs: schema
-- on a full server: passes
-- Keep the value of a signal with the run and put `signal` into the inbox, unless the run has ended.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   SHA-256 of the value
-- ARGV[3]   the value, JSON
-- ARGV[4]   the entry: name and reference to the value
-- Reply     'SENT' | 'ENDED' | 'UNKNOWN'

local run, sha256, value, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('EXISTS', RUN .. run) == 0 then
  return 'UNKNOWN'
end
if redis.call('ZSCORE', ENDED, run) then
  return 'ENDED'
end
redis.call('HSETNX', BLOBS .. run, sha256, value)
redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'signal', 'body', entry)
return 'SENT'
