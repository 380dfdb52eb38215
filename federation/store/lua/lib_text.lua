-- Convert a whole number to text. Lua's own `tostring` and cjson keep 14 digits; tokens have 16, byte amounts up to 16. '%d' takes
-- a C long, which has 64 bits on every server that redis/safety.py accepts, and a quarter of the time of '%.0f'.
-- Results are cached, because the same amounts repeat within a call.
local format_number, TEXTS = string.format, { [0] = '0' }
local function text(number)
  local known = TEXTS[number]
  if not known then
    known = format_number('%d', number)
    TEXTS[number] = known
  end
  return known
end
