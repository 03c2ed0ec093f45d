-- Settles events, fenced. ARGV: the epoch, the number of the call (a call that is repeated changes nothing and is answered as the first
-- time), 24 bytes a settlement, then the texts that they have, in their order: a note where flag 2 is set, a reason where 4 is.
--
--   number 6 · verdict 1 · flags 1 (1: the attempt was refused) · at 8 · due 8
local m = read_sums()
if m.epoch ~= tonumber(ARGV[1]) then return { 0 } end
if m.call == tonumber(ARGV[2]) then return { 1, m.answer, 0, told(m, oldest_of_all()) } end
local batch, text, ignored = ARGV[3], 3, 0

local numbers, was, now = {}, {}, {}
for p = 1, #batch, 24 do
  local n6 = sub(batch, p, p + 5)
  if was[n6] == nil then was[n6], numbers[#numbers + 1] = false, n6 end
end
for i, state in ipairs(many_of('HMGET', STATES, numbers)) do
  was[numbers[i]], now[numbers[i]] = state, state
end

-- Verdicts as record.rs numbers them, and the status that each gives.
local STATUS = { 2, 3, 3, 1, 4, 5, 7 }
local notes = {}
for p = 1, #batch, 24 do
  local n6, verdict, flags = sub(batch, p, p + 5), byte(batch, p + 6, p + 7)
  local note, reason, state = '', '', now[n6]
  if flags % 4 >= 2 then text, note = text + 1, ARGV[text + 1] end
  if flags >= 4 then text, reason = text + 1, ARGV[text + 1] end
  if not state or byte(state, 9) > 3 then
    ignored = ignored + 1
  else
    local at, due = sub(batch, p + 8, p + 15), sub(batch, p + 16, p + 23)
    local first = sub(state, 34, 41)
    local attempts, interrupted, refused = unpacked('>I4I4I4', state, 42)
    if verdict == 1 then
      if attempts == 0 then first = at end
      attempts = attempts + 1
    elseif verdict == 2 then
      interrupted = interrupted + 1
    else
      interrupted = 0
    end
    refused = refused + flags % 2
    local noted = unpacked('>I4', state, 62)
    if note ~= '' then
      local page = page_of(n6)
      if not notes[page] then notes[page] = {} end
      local list = notes[page]
      list[#list + 1], list[#list + 2] = 'a' .. sub(n6, 6) .. char(noted % 256), note
      noted = noted + 1
    end
    now[n6] = sub(state, 1, 8) .. char(STATUS[verdict]) .. sub(state, 10, 17) .. at .. due .. first
      .. pack('>I4I4I4', attempts, interrupted, refused) .. sub(state, 54, 61) .. pack('>I4', noted) .. sub(state, 66) .. reason
  end
end

local states, open, closed, due, undue, ends, dead = {}, {}, {}, {}, {}, {}, {}
local lanes, names, ended, changed = {}, {}, 0, 0
local function lane_with(state)
  local name = lane_of(state)
  if not lanes[name] then lanes[name], names[#names + 1] = { gone = {}, bytes = 0, retrying = 0 }, name end
  return lanes[name]
end
for _, n6 in ipairs(numbers) do
  local before, after = was[n6], now[n6]
  if before ~= after then
    local a, b = byte(before, 9), byte(after, 9)
    states[changed + 1], states[changed + 2] = n6, after
    changed = changed + 2
    if a == 2 and b ~= 2 then closed[#closed + 1] = n6 end
    if b == 2 and a ~= 2 then open[#open + 1], open[#open + 2] = number(n6), n6 end
    if a == 3 and (b ~= 3 or sub(before, 26, 33) ~= sub(after, 26, 33)) then undue[#undue + 1] = sub(before, 26, 33) .. n6 end
    if b == 3 and (a ~= 3 or sub(before, 26, 33) ~= sub(after, 26, 33)) then due[#due + 1], due[#due + 2] = 0, sub(after, 26, 33) .. n6 end
    if (a == 3) ~= (b == 3) then
      local lane = lane_with(before)
      lane.retrying = lane.retrying + (b == 3 and 1 or -1)
    end
    if b > 3 then
      local lane, bytes = lane_with(before), unpacked('>I4', before, 58)
      lane.gone[#lane.gone + 1], lane.bytes = n6, lane.bytes + bytes
      m.pending, m.bytes, ended = m.pending - 1, m.bytes - bytes, ended + 1
      local key = ENDS[b]
      if not ends[key] then ends[key] = {} end
      local list = ends[key]
      list[#list + 1], list[#list + 2] = unpacked('>I8', after, 18), n6
      if b == 5 then dead[#dead + 1], dead[#dead + 2] = number(n6), n6 end
    end
  end
end

if changed > 0 then many('HSET', STATES, states) end
if #closed > 0 then many('ZREM', OPEN, closed) end
if #open > 0 then many('ZADD', OPEN, open) end
if #dead > 0 then many('ZADD', DEAD, dead) end
if #undue > 0 then many('ZREM', DUE, undue) end
if #due > 0 then many('ZADD', DUE, due) end
for key, list in pairs(ends) do many('ZADD', key, list) end
for page, list in pairs(notes) do many('HSET', base .. 'p:' .. page, list) end

local entries, empty = {}, {}
for i, found in ipairs(many_of('HMGET', LANES, names)) do
  local name, entry = names[i], read_lane(found)
  local lane = lanes[name]
  entry[1], entry[2], entry[4] = entry[1] - #lane.gone, entry[2] + lane.retrying, entry[4] - lane.bytes
  if #lane.gone > 0 then
    many('ZREM', base .. 'q:' .. name, lane.gone)
    if entry[3] > 0 then entry[3] = entry[3] - call('ZREM', base .. 'x:' .. name, unpack(lane.gone)) end
    local whole = whole_of(name)
    if whole and call('HINCRBY', PARTS, whole, -#lane.gone) <= 0 then call('HDEL', PARTS, whole) end
  end
  if entry[1] == 0 then
    empty[#empty + 1] = name
  else
    entries[#entries + 1], entries[#entries + 2] = name, lane_text(entry)
  end
end
if #entries > 0 then many('HSET', LANES, entries) end
if #empty > 0 then
  many('HDEL', LANES, empty)
  many('ZREM', HEADS, empty)
  m.lanes = m.lanes - #empty
end
m.call, m.answer = tonumber(ARGV[2]), ignored
write_sums(m)
return { 1, ignored, ended, told(m, ended > 0 and oldest_of_all() or -2) }
