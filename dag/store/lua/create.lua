-- needs: keys, sections
-- Store a new run with its blobs, list it, and put `submitted` into the inbox.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   run
-- ARGV[2]   tenant
-- ARGV[3]   digest of the spec
-- ARGV[4]   when it was created, milliseconds since the epoch
-- ARGV[5…]  sections: the tenant and all above it; fields of the run; nodes; stages; blobs (each name, value, …)
-- Reply     'CREATED' | 'SAME' when the id exists with this tenant and digest | 'CONFLICT' when with another

local run, tenant, digest, created_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local known = redis.call('HMGET', RUN .. run, 'tenant', 'digest')
if known[1] then
  return (known[1] == tenant and known[2] == digest) and 'SAME' or 'CONFLICT'
end

local first, last, at = section(5)
for place = first, last do
  redis.call('ZADD', RUNS_OF .. ARGV[place], created_ms, run)
end
for _, hash in ipairs({RUN, NODES, STAGES, BLOBS}) do
  at = write_rows(hash .. run, at)
end
redis.call('SADD', ACTIVE, run)
redis.call('XADD', INBOX, '*', 'run', run, 'kind', 'submitted', 'body', '')
return 'CREATED'
