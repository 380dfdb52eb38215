-- needs: keys
-- Feed of all runs: readers of many runs learn from it which of them have changed.

-- About so many changes are kept; a reader that missed more lists the runs again.
local FEED_MAX = 10000

-- `ended`: '1' when the run has ended; empty otherwise.
local function announce(run, tenant, ended)
  redis.call('XADD', RUN_FEED, 'MAXLEN', '~', FEED_MAX, '*', 'run', run, 'tenant', tenant, 'ended', ended)
end
