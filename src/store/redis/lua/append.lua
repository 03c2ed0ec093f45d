-- Stores events. ARGV: the epoch as which the caller holds the shard (0: it does not), the channel of wake-ups, what to say there, then
-- for each event three: what the script needs of it, its head, the rest.
--
--   id 16 · cap 8 (double; -1: none) · 0, or 1 with fingerprint 16, end of its window 8 (double), its length in ms 8 (double) · a state
--   without its first 8 bytes
--
-- An event whose id is there already is not stored again: its place is the answer, so a call may be repeated. The answer has 23 bytes an
-- event: S (stored), D (stored, and suppressed as a repeat of the id that follows) or B (backlog), its number, an id; M where its group
-- has moved, with the shard in the number's place, or W where it is about to.
local FIRST, NOBODY = 4, string.rep('\0', 16)
local m = read_sums()
local ids, tails, of_lane, lanes, names, asked, marks, k = {}, {}, {}, {}, {}, {}, {}, 0
for i = FIRST, #ARGV, 3 do
  local text, at = ARGV[i], 26
  k = k + 1
  if byte(text, 25) == 1 then
    at = 58
    asked[#asked + 1] = base .. 'd:' .. sub(text, 26, 41)
  end
  local lane = sub(text, at + 60, at + 59 + unpacked('>I2', text, at + 58))
  ids[k], tails[k], of_lane[k] = sub(text, 1, 16), sub(text, at), lane
  if not lanes[lane] then
    names[#names + 1], lanes[lane] = lane, { name = lane, queue = {}, queued = 0, late = {}, whole = whole_of(lane) }
  end
end
if k == 0 then return { '', written(m.last), told(m, -2) } end
local known = many_of('HMGET', IDS, ids)
for i, entry in ipairs(many_of('HMGET', LANES, names)) do lanes[names[i]].entry = read_lane(entry) end
if #asked > 0 then
  for i, mark in ipairs(call('MGET', unpack(asked))) do marks[asked[i]] = mark end
end

-- The id that an event repeats. A dead one is repeated by nobody.
local function repeated(key, received)
  local mark = marks[key]
  if not mark or received >= unpacked('<d', mark) then return nil end
  local n6 = call('HGET', IDS, sub(mark, 9))
  local state = n6 and call('HGET', STATES, n6)
  if not state or byte(state, 9) ~= 5 then return sub(mark, 9) end
end
-- From now on repeats are known by this event.
local function mark_by(key, text)
  marks[key] = sub(text, 42, 49) .. sub(text, 1, 16)
  call('SET', key, marks[key], 'PX', string.format('%.0f', (unpacked('<d', text, 50))))
end
-- Pending events of a group: those of its own lane and of all its parts.
local parts = {}
local function waiting(lane)
  local group = lane.whole or sub(lane.name, 1, -2)
  if parts[group] == nil then parts[group] = tonumber(call('HGET', PARTS, group)) or 0 end
  local own = lanes[group .. '\0']
  return parts[group] + (own and own.entry[1] or read_lane(call('HGET', LANES, group .. '\0'))[1])
end

local now, pages, away = math.max(m.t, clock()), {}, aways()
local t8 = pack('>I8', now)
local answer, states, places, stored, suppressed, mine, list, listed = {}, {}, {}, 0, {}, {}, nil, 0

-- An event waits in its lane from now on.
local function queue(lane, w, bytes, n6)
  local entry, q = lane.entry, lane.queued
  lane.queue[q + 1], lane.queue[q + 2], lane.queued = m.last, n6, q + 2
  if entry[1] == 0 then
    m.lanes, lane.first = m.lanes + 1, w
  elseif w < entry[5] then
    lane.late[#lane.late + 1], lane.late[#lane.late + 2] = w, n6
    lane.first, entry[3] = math.min(lane.first or w, w), entry[3] + 1
  end
  entry[1], entry[4], entry[5] = entry[1] + 1, entry[4] + bytes, math.max(entry[5], w)
  m.pending, m.bytes = m.pending + 1, m.bytes + bytes
  if lane.whole then
    call('HINCRBY', PARTS, lane.whole, 1)
    if parts[lane.whole] then parts[lane.whole] = parts[lane.whole] + 1 end
  end
end
-- What was stored before: an earlier call's, or earlier in this one.
local function again(n6)
  local state = call('HGET', STATES, n6)
  if not state or byte(state, 66) < 2 then return 'S' .. n6 .. NOBODY end
  local from = 69 + unpacked('>I2', state, 67)
  return 'D' .. n6 .. sub(state, from, from + 15)
end

for i, id in ipairs(ids) do
  local arg = FIRST + (i - 1) * 3
  local text, tail, lane = ARGV[arg], tails[i], lanes[of_lane[i]]
  local w, cap = unpacked('>I8', tail, 2), unpacked('<d', text, 17)
  local key = byte(text, 25) == 1 and base .. 'd:' .. sub(text, 26, 41)
  local of, left = key and repeated(key, w), away and away[group_of(lane.name)]
  if known[i] then
    answer[i] = again(known[i])
  elseif mine[id] then
    answer[i] = answer[mine[id]]
  elseif left and left.stage == GONE then
    answer[i] = 'M' .. written(left.to) .. NOBODY
  elseif left and left.stage == CLOSING then
    answer[i] = 'W' .. written(0) .. NOBODY
  elseif not of and cap >= 0 and waiting(lane) >= cap then
    answer[i] = 'B' .. written(0) .. NOBODY
  else
    m.last = m.last + 1
    local n6 = written(m.last)
    mine[id] = i
    if of then
      local w8 = sub(tail, 2, 9)
      tail = '\6' .. w8 .. w8 .. sub(tail, 18, 57) .. '\2' .. sub(tail, 59) .. of
      suppressed[#suppressed + 1], suppressed[#suppressed + 2] = w, n6
      answer[i] = 'D' .. n6 .. of
    else
      if key then mark_by(key, text) end
      queue(lane, w, unpacked('>I4', tail, 50), n6)
      answer[i] = 'S' .. n6 .. NOBODY
    end
    states[stored + 1], states[stored + 2] = n6, t8 .. tail
    places[stored + 1], places[stored + 2] = id, n6
    stored = stored + 2
    local page, b = math.floor(m.last / 256), sub(n6, 6)
    if not list or list.page ~= page then
      list, listed = { page = page }, 0
      pages[#pages + 1] = list
    end
    list[listed + 1], list[listed + 2], list[listed + 3], list[listed + 4] = 'h' .. b, ARGV[arg + 1], 'b' .. b, ARGV[arg + 2]
    listed = listed + 4
  end
end
if stored == 0 then return { table.concat(answer), written(m.last), told(m, -2) } end

many('HSET', STATES, states)
many('HSET', IDS, places)
for _, list in ipairs(pages) do put_page(list.page, list, now) end
local entries, heads = {}, {}
for _, name in ipairs(names) do
  local lane = lanes[name]
  if lane.queued > 0 then
    many('ZADD', base .. 'q:' .. name, lane.queue)
    if #lane.late > 0 then many('ZADD', base .. 'x:' .. name, lane.late) end
    entries[#entries + 1], entries[#entries + 2] = name, lane_text(lane.entry)
    if lane.first then heads[#heads + 1], heads[#heads + 2] = lane.first, name end
  end
end
if #entries > 0 then many('HSET', LANES, entries) end
local oldest = -2
if #heads > 0 then
  lower_heads(heads)
  oldest = oldest_of_all()
end
if #suppressed > 0 then many('ZADD', ENDS[6], suppressed) end
m.t = now
write_sums(m)
if tonumber(ARGV[1]) ~= m.epoch or m.epoch == 0 then call('PUBLISH', ARGV[2], ARGV[3]) end
return { table.concat(answer), written(m.last), told(m, oldest) }
