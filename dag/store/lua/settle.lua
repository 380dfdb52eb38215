-- needs: schema, backlog
-- on a full server: passes
-- Settle an ended run whose last decisions are carried out: it leaves ACTIVE and the counts of open runs.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- Reply     1 the first time | 0, also when the run was resumed meanwhile

if not redis.call('ZSCORE', ENDED, ARGV[1]) then
  return 0
end
return close_run(ARGV[1])
