-- needs: schema
-- on a full server: passes
-- Put a request to cancel into the inbox, unless the run has ended.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   why, in words
-- ARGV[3]   'cancel' | 'cancel_all' to stop the cleanup too
-- Reply     'ASKED' | 'ENDED' | 'UNKNOWN'

local run, reason, kind = ARGV[1], ARGV[2], ARGV[3]

if redis.call('EXISTS', RUN .. run) == 0 then
  return 'UNKNOWN'
end
if redis.call('ZSCORE', ENDED, run) then
  return 'ENDED'
end
redis.call('XADD', INBOX, '*', 'run', run, 'kind', kind, 'body', reason)
return 'ASKED'
