-- needs: schema, backlog
-- on a full server: passes
-- The run has ended and its last decisions are carried out: nobody has to look at it any more, and it is open no longer.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- Reply     1 the first time | 0

return close_run(ARGV[1])
