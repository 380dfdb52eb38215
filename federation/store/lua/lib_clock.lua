-- needs: keys, text
-- First steps of every verb of the ledger: read META, move the lease clock, check whether Redis has restarted or changed.
--
-- The lease clock LT counts milliseconds that the ledger has certainly seen pass. Each script moves it by the time since
-- the last script, at most by `max_step_ms`. A second step that long within one time to live moves it by nothing, because two
-- forward jumps of the server's clock could exceed the grace. A clock that is set back begins an epoch. So a ledger that
-- was down has not aged, and every expiry is a value of LT, never the time to live of a Redis key.
--
-- An epoch is one life of the data. It ends when the server restarts or another one is promoted (both change the replication
-- id), when a caller knows a token that this ledger has not issued yet (writes were lost), or when the clock goes back. A new
-- epoch begins with recovery: for `recovery_for_ms` nothing is granted and nothing reclaimed, since leases may be in use that the
-- ledger has lost. Source: ADR 0019.
--
-- META: uid, schema, epoch, replid, lt, last (us), token, recovery_ends (LT at which the recovery ends), clamped (LT of the last step
-- that was too long), version and tree (number and name of the tenant tree), ttl_ms, grace_ms, max_step_ms, recovery_for_ms,
-- arrivals, recovery_since (the epoch in which the last recovery began; another epoch that begins meanwhile only prolongs it);
-- only tests write `test_offset_ms`.

local UID, FOUND, EPOCH, REPLID, LT, LAST_US, TOKEN, RECOVERING, MAX_STEP_MS, TEST_MS = unpack(redis.call('HMGET', META, 'uid', 'schema',
  'epoch', 'replid', 'lt', 'last', 'token', 'recovery_ends', 'max_step_ms', 'test_offset_ms'))
if not UID then
  return { 'UNINIT' }
end
if FOUND ~= SCHEMA then
  return { 'SCHEMA', FOUND }
end
LT, LAST_US, TOKEN, RECOVERING, MAX_STEP_MS = tonumber(LT), tonumber(LAST_US), tonumber(TOKEN), tonumber(RECOVERING), tonumber(MAX_STEP_MS)

-- Fields of META that few calls need.
local function rare(name)
  return tonumber(redis.call('HGET', META, name))
end

local TIME = redis.call('TIME')
local NOW_US = TIME[1] * 1000000 + TIME[2] + (TEST_MS and TEST_MS * 1000 or 0)

-- Return the next token: greater than every earlier one, even after lost writes, unless the clock was set back further than a
-- recovery lasts; below 2^53 until the year 2255. `keep_token` writes it: every verb that issues tokens ends with it.
local function next_token()
  TOKEN = math.max(TOKEN + 1, NOW_US)
  return TOKEN
end

local function keep_token()
  redis.call('HSET', META, 'token', text(TOKEN))
end

local function recovery_left()
  return math.max(0, RECOVERING - LT)
end

-- Begin an epoch with a recovery. `known` is a token that a caller has, 0 without one.
local function begin_epoch(why, known)
  TOKEN = math.max(TOKEN, known)
  EPOCH = text(next_token())
  if recovery_left() == 0 then
    redis.call('HSET', META, 'recovery_since', EPOCH)
  end
  RECOVERING = LT + rare('recovery_for_ms')
  redis.call('HSET', META, 'epoch', EPOCH, 'recovery_ends', text(RECOVERING), 'token', text(TOKEN), 'replid', REPLID)
  redis.call('XADD', LOG, 'MAXLEN', '~', '100000', '*', 'verb', 'epoch', 'why', why, 'lt', text(LT))
end

-- Refuse a token that no ledger can have issued yet, so nobody can use up the space of tokens.
local function is_from_the_future(token)
  return token > TOKEN and token > NOW_US + 60000000
end

-- A caller's token that this ledger has not issued proves that writes were lost.
local function recover_from(token)
  if token > TOKEN then
    begin_epoch('a mesh has seen a token that was not given out: writes were lost', token)
  end
end

local PASSED_US = NOW_US - LAST_US
local IS_SET_BACK = PASSED_US < -50000
if IS_SET_BACK then
  LAST_US = NOW_US
elseif PASSED_US > 0 then
  local passed_ms = math.floor(PASSED_US / 1000)
  LAST_US = LAST_US + passed_ms * 1000
  if passed_ms > MAX_STEP_MS then
    local CLAMPED, TTL_MS = rare('clamped'), rare('ttl_ms')
    redis.call('HSET', META, 'clamped', text(LT))
    passed_ms = (CLAMPED >= 0 and LT - CLAMPED < TTL_MS) and 0 or MAX_STEP_MS
  end
  LT = LT + passed_ms
end
redis.call('HSET', META, 'lt', format_number('%d', LT), 'last', format_number('%d', LAST_US))

-- Functions may cache when they last checked, see redis/scripts.py. The cache ends with the server's process, and with a full
-- copy from another server. A server that was demoted and promoted again within LOOK_US had no time to lose anything.
local LOOK_US, LOOKED = 100000, LOOKS[META]
if IS_SET_BACK or not LOOKED or LOOKED.replid ~= REPLID or NOW_US < LOOKED.at_us or NOW_US > LOOKED.at_us + LOOK_US then
  local replication = redis.call('INFO', 'replication')
  local _, follows = string.find(replication, 'master_replid:', 1, true) -- Plain: a pattern takes longer than all of INFO.
  local REPLID_NOW = string.match(replication, '^%x+', follows + 1)
  if REPLID_NOW ~= REPLID then
    REPLID = REPLID_NOW
    begin_epoch('the server restarted or another was promoted', 0)
  elseif IS_SET_BACK then
    begin_epoch('the clock of the server was set back', 0)
  end
  LOOKS[META] = { replid = REPLID, at_us = NOW_US }
end
