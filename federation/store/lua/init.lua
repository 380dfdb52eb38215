-- needs: schema, text
-- Create a ledger: its identity, its times, its first epoch. The ledger begins with recovery, since leases may exist that an
-- empty server does not know; only the creator of the ledger's very first storage may set `founding`.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   uid of the ledger
-- ARGV[2…4] time to live, grace, longest step of the lease clock; ms
-- ARGV[5]   '1': no lease of this ledger can exist yet, so no recovery is needed
-- Reply     'OK' | 'EXISTS' when there is one already

if redis.call('HEXISTS', META, 'uid') == 1 then
  return 'EXISTS'
end
local ttl_ms, grace_ms, founding = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5] == '1'
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2]) + tonumber(redis.call('HGET', META, 'test_offset_ms') or '0') * 1000
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
redis.call('HSET', META, 'uid', ARGV[1], 'schema', SCHEMA, 'epoch', text(now_us), 'token', text(now_us), 'replid', replid, 'lt', '0',
  'last', text(now_us), 'clamped', '-1', 'version', '0', 'tree', '', 'recovery_ends', founding and '0' or text(ttl_ms + grace_ms),
  'ttl_ms', ARGV[2], 'grace_ms', ARGV[3], 'max_step_ms', ARGV[4], 'recovery_for_ms', text(ttl_ms + grace_ms))
return 'OK'
