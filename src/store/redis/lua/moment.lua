-- When an event was committed, for one that is gone the next younger one. ARGV: a number. Empty where nothing younger is there.
local n = tonumber(ARGV[1])
local state = call('HGET', STATES, written(n))
if state then return sub(state, 1, 8) end
for _, page in ipairs(call('ZRANGEBYSCORE', PAGES, math.floor(n / 256), '+inf', 'LIMIT', 0, 2)) do
  local fields = {}
  for b = 0, 255 do
    if page * 256 + b > n then fields[#fields + 1] = written(page * 256 + b) end
  end
  for _, found in ipairs(many_of('HMGET', STATES, fields)) do
    if found then return sub(found, 1, 8) end
  end
end
return ''
