-- needs: schema, text
-- Append output of a stage's nodes to the log of its run, once, under the claim. Bounded: first output of each node stays, up to a limit
-- for the run; of the rest the oldest goes first.
--
-- KEYS      `Keys.scripted`
-- ARGV[1]   stage
-- ARGV[2]   mesh
-- ARGV[3]   incarnation
-- ARGV[4]   token of the claim
-- ARGV[5]   batch: counts up per claim
-- ARGV[6]   most bytes of first output of a node
-- ARGV[7]   most bytes of first output of the run
-- ARGV[8]   most bytes of the rest
-- ARGV[9]   most nodes whose first output is counted
-- ARGV[10…] for each output: node and attempt; `NodeOutput`, as JSON
-- Reply     'OK' | 'STALE'

local stage, mesh, incarnation, token, batch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local node_max, first_max, rest_max, nodes_max = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local run, at, holder, current = unpack(redis.call('HMGET', STAGE .. stage, 'run', 'mesh', 'incarnation', 'token'))
if not run or at ~= mesh or holder ~= incarnation or current ~= token then
  return 'STALE'
end

-- In `use`: `seq` the last entry, `first` and `rest` bytes, `oldest` the entry at which the search for the oldest rest begins,
-- `batch|<stage>|<token>` the last batch, `node|<node>` bytes of its first output.
local log, use = RUN_LOG .. run, RUN_LOG_USE .. run
local taken = 'batch|' .. stage .. '|' .. token
if batch <= tonumber(redis.call('HGET', use, taken) or '0') then
  return 'OK'
end
local seq, first, rest, oldest = unpack(redis.call('HMGET', use, 'seq', 'first', 'rest', 'oldest'))
seq, first, rest, oldest = tonumber(seq or '0'), tonumber(first or '0'), tonumber(rest or '0'), oldest or '-'

for place = 10, #ARGV, 2 do
  local node, body = 'node|' .. ARGV[place], ARGV[place + 1]
  local size, kind = #body, 'rest'
  local of_node = tonumber(redis.call('HGET', use, node) or '0')
  if of_node + size <= node_max and first + size <= first_max and (of_node > 0 or redis.call('HLEN', use) < nodes_max) then
    redis.call('HSET', use, node, text(of_node + size))
    first, kind = first + size, 'first'
  else
    rest = rest + size
  end
  seq = seq + 1
  redis.call('XADD', log, text(seq) .. '-0', 'kind', kind, 'mesh', mesh, 'body', body)
end

while rest > rest_max do
  local entries = redis.call('XRANGE', log, oldest, '+', 'COUNT', 64)
  if #entries == 0 then
    break
  end
  for _, entry in ipairs(entries) do
    if rest > rest_max and entry[2][2] == 'rest' then
      rest = rest - #entry[2][6]
      redis.call('XDEL', log, entry[1])
    end
    if rest > rest_max then
      oldest = '(' .. entry[1]
    end
  end
end
redis.call('HSET', use, 'seq', text(seq), 'first', text(first), 'rest', text(rest), 'oldest', oldest, taken, text(batch))
return 'OK'
