-- Events themselves. ARGV: `read` and numbers: state, head and rest of each, empty where it is not there; or `find` and an id: number,
-- state, head and notes of the one, nothing where there is none.
if ARGV[1] == 'find' then
  local n6 = call('HGET', IDS, ARGV[2])
  local state = n6 and call('HGET', STATES, n6)
  if not state then return false end
  local page, b, noted = base .. 'p:' .. page_of(n6), sub(n6, 6), unpacked('>I4', state, 62)
  local fields = { 'h' .. b }
  for k = math.max(0, noted - 256), noted - 1 do fields[#fields + 1] = 'a' .. b .. char(k % 256) end
  local found = call('HMGET', page, unpack(fields))
  table.insert(found, 1, state)
  table.insert(found, 1, n6)
  return found
end
local out = {}
for i = 1, #ARGV[2], 6 do
  local n6 = sub(ARGV[2], i, i + 5)
  local state, b = call('HGET', STATES, n6), sub(n6, 6)
  local parts = state and call('HMGET', base .. 'p:' .. page_of(n6), 'h' .. b, 'b' .. b)
  out[#out + 1], out[#out + 2], out[#out + 3] = state or '', parts and parts[1] or '', parts and parts[2] or ''
end
return out
