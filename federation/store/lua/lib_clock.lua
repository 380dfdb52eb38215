-- needs: keys
-- Redis' own time is the ledger's time; no caller's clock is ever read.
--
-- Tests move time forward by `test_offset_ms` in META, which nothing else writes: a test that waits for a time to live
-- would be slow where this is exact.

-- A whole number as text. Lua's own `tostring` and cjson keep 14 digits; tokens have 16, byte amounts up to 16.
local function text(number)
  return string.format('%.0f', number)
end

local TIME = redis.call('TIME')
local NOW_US = tonumber(TIME[1]) * 1000000 + tonumber(TIME[2])
  + tonumber(redis.call('HGET', META, 'test_offset_ms') or '0') * 1000
local NOW_MS = math.floor(NOW_US / 1000)

-- The next fencing token, as text: greater than every earlier one, also after the last second of writes was lost, as
-- long as the clock was not set back; below 2^53 until the year 2255.
local function next_token()
  local last = tonumber(redis.call('HGET', META, 'token') or '0')
  local token = text(math.max(last + 1, NOW_US))
  redis.call('HSET', META, 'token', token)
  return token
end
