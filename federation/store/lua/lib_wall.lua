-- needs: keys
-- Milliseconds since the epoch on the server's clock, for ages of stages; no script decides by them.
local function wall_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(redis.call('HGET', META, 'test_offset_ms') or '0')
end
