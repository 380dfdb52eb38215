-- needs: schema, sections, backlog, feed
-- Store a new run with its blobs, list it, announce it, and put `submitted` into the inbox.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   tenant
-- ARGV[3]   digest of the spec
-- ARGV[4]   when it was created, milliseconds since the epoch
-- ARGV[5]   idempotency key; empty: none
-- ARGV[6]   bytes that the open run counts
-- ARGV[7…8] most open runs and bytes of a tenant with its descendants
-- ARGV[9]   largest share of the server's memory limit in use, percent
-- ARGV[10…11] place of a schedule, and the version that it must have; empty: the run is not fenced
-- ARGV[12…] sections: the tenant and its ancestors; names of the lists by label; fields of the run; nodes; stages; blobs (each name, value, …)
-- Reply     {'CREATED'} | {'SAME'} when the id exists with this tenant and digest | {'CONFLICT'} when with another
--           {'KEY', run} when the key was used for another submission
--           {'STALE'} when the schedule has another version
--           {'FULL', …} | {'MEMORY'}: `no_room_for`

local run, tenant, digest, created_ms, key, weight = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local used_for = key ~= '' and redis.call('HGET', IDEMPOTENCY .. tenant, key)
if used_for and used_for ~= run then
  return { 'KEY', used_for }
end
local known = redis.call('HMGET', RUN .. run, 'tenant', 'digest')
if known[1] then
  if known[1] == tenant and known[2] == digest then
    return { 'SAME' }
  end
  return used_for and { 'KEY', run } or { 'CONFLICT' }
end

if ARGV[10] ~= '' and redis.call('HGET', SCHEDULE .. ARGV[10], 'version') ~= ARGV[11] then
  return { 'STALE' }
end

local refusal = no_room_for(tenant, weight, ARGV[7], ARGV[8], ARGV[9])
if refusal then
  return refusal
end

local first, last, at = section(12)
for place = first, last do
  redis.call('ZADD', RUNS_OF .. ARGV[place], created_ms, run)
end
local label_first, label_last
label_first, label_last, at = section(at)
for place = label_first, label_last do
  redis.call('ZADD', LABELLED .. ARGV[place], created_ms, run)
end
for _, hash in ipairs({RUN, NODES, STAGES, BLOBS}) do
  at = write_rows(hash .. run, at)
end
redis.call('HSET', RUN .. run, 'weight', weight)
if key ~= '' then
  redis.call('HSET', IDEMPOTENCY .. tenant, key, run)
end
redis.call('SADD', ACTIVE, run)
count_open(tenant, 1, weight)
redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'submitted', 'body', '')
announce(run, tenant, '')
return { 'CREATED' }
