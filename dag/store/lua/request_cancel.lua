-- needs: schema
-- on a full server: passes
-- Put `cancel` into the inbox, unless the run has ended.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   why, in words
-- Reply     'ASKED' | 'ENDED' | 'UNKNOWN'

local run, reason = ARGV[1], ARGV[2]

if redis.call('EXISTS', RUN .. run) == 0 then
  return 'UNKNOWN'
end
if redis.call('ZSCORE', ENDED, run) then
  return 'ENDED'
end
redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'cancel', 'body', reason)
return 'ASKED'
