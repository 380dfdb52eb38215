-- Sections: lists of any length among the arguments. A section is the number of its items, then the items.

-- Lua's stack holds about 8000 values, so no call gets more than this at once.
local AT_ONCE = 4000

-- Return the places of the first and the last item of the section that begins at ARGV[at], and of the next section.
local function section(at)
  local count = tonumber(ARGV[at])
  return at + 1, at + count, at + 1 + count
end

-- Write the name-value pairs of the section that begins at ARGV[at] into a hash; return the place of the next section.
local function write_rows(hash, at)
  local first, last, next_at = section(at)
  for from = first, last, AT_ONCE do
    redis.call('HSET', hash, unpack(ARGV, from, math.min(from + AT_ONCE - 1, last)))
  end
  return next_at
end
