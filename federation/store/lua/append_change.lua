-- needs: schema
-- Append an entry to a log of changes, under the next number of all logs; of a full log the oldest entries go.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   log
-- ARGV[2]   entry, JSON
-- ARGV[3]   about how many entries are kept
-- Reply     number of the entry

local number = redis.call('HINCRBY', CHANGE_LOGS, 'last', 1)
redis.call('HSET', CHANGE_LOGS, 'log|' .. ARGV[1], number)
redis.call('XADD', CHANGE_LOG .. ARGV[1], 'MAXLEN', '~', ARGV[3], string.format('%d-1', number), 'change', ARGV[2])
return number
