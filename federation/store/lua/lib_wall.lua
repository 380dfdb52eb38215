-- needs: keys
-- Milliseconds since the epoch by the server's clock, for people: ages are told by it, and nothing is decided.
local function wall_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(redis.call('HGET', META, 'test_offset_ms') or '0')
end
