-- needs: schema, backlog
-- on a full server: passes
-- Settle an ended run whose last decisions are carried out: it leaves ACTIVE and the counts of open runs.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- Reply     1 the first time | 0

return close_run(ARGV[1])
