-- A whole number as text. Lua's own `tostring` and cjson keep 14 digits; tokens have 16, byte amounts up to 16.
local function text(number)
  return string.format('%.0f', number)
end
