-- Lets go of ended events. ARGV: the epoch, a family (4 delivered, 5 dead, 6 suppressed), up to which end (a time, or +inf), how many at
-- most. The answer: how many went; nothing where the shard is another epoch's.
local m = read_sums()
if m.epoch ~= tonumber(ARGV[1]) then return false end
local ends = ENDS[tonumber(ARGV[2])]
local numbers = call('ZRANGEBYSCORE', ends, '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])
if #numbers == 0 then return 0 end
local pages, ids = {}, {}
for i, state in ipairs(many_of('HMGET', STATES, numbers)) do
  local n6 = numbers[i]
  local page, b, noted = page_of(n6), sub(n6, 6), state and unpacked('>I4', state, 62) or 0
  pages[page] = pages[page] or {}
  local fields = pages[page]
  local head = call('HGET', base .. 'p:' .. page, 'h' .. b)
  if head then ids[#ids + 1] = sub(head, 2, 17) end
  fields[#fields + 1], fields[#fields + 2] = 'h' .. b, 'b' .. b
  for k = math.max(0, noted - 256), noted - 1 do fields[#fields + 1] = 'a' .. b .. char(k % 256) end
end
many('HDEL', STATES, numbers)
many('ZREM', ends, numbers)
if ARGV[2] == '5' then many('ZREM', DEAD, numbers) end
if #ids > 0 then many('HDEL', IDS, ids) end
for page, fields in pairs(pages) do
  many('HDEL', base .. 'p:' .. page, fields)
  forget_page(page)
end
return #numbers
