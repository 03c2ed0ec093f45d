-- Makes ended events pending again under new numbers, in the order given; not fenced. ARGV: what a repetition is known by, the time 8, the
-- channel of wake-ups, what to say there, three times before which what ended is past retention (delivered, dead, suppressed; doubles), the
-- numbers. The answer has an event's number, state and head for each, empty ones where it is not there, not ended or past retention.
local receipt, at, kept = base .. 'c:' .. ARGV[1], ARGV[2], {}
kept[4], kept[5], kept[6] = unpacked('<ddd', ARGV[5])
kept[7] = kept[4]
local m = read_sums()
local function answered(places)
  local out = {}
  for _, n6 in ipairs(places) do
    local state = n6 ~= '' and call('HGET', STATES, n6)
    if state then
      local row = rows({ n6 }, { state })
      out[#out + 1], out[#out + 2], out[#out + 3] = row[1], row[2], row[3]
    else
      out[#out + 1], out[#out + 2], out[#out + 3] = '', '', ''
    end
  end
  return { out, told(m, oldest_of_all()) }
end
local before = call('GET', receipt)
if before then return answered(cmsgpack.unpack(before)) end

local now, places = math.max(m.t, clock()), {}

-- The parts of an event, its notes too, from the page of its old number to that of its new one.
local function move(old, new, noted)
  local from, a, b = base .. 'p:' .. page_of(old), sub(old, 6), sub(new, 6)
  local there, here = { 'h' .. a, 'b' .. a }, { 'h' .. b, 'b' .. b }
  for k = math.max(0, noted - 256), noted - 1 do
    there[#there + 1], here[#here + 1] = 'a' .. a .. char(k % 256), 'a' .. b .. char(k % 256)
  end
  local fields = {}
  for i, value in ipairs(call('HMGET', from, unpack(there))) do
    if value then fields[#fields + 1], fields[#fields + 2] = here[i], value end
  end
  put_page(page_of(new), fields, now)
  call('HDEL', from, unpack(there))
  forget_page(page_of(old))
  return fields[2]
end

for i = 1, #ARGV[6], 6 do
  local old = sub(ARGV[6], i, i + 5)
  local state = call('HGET', STATES, old)
  local status = state and byte(state, 9) or 0
  if status < 4 or unpacked('>I8', state, 18) <= kept[status] then
    places[#places + 1] = ''
  else
    m.last = m.last + 1
    local new, name, w = written(m.last), lane_of(state), unpacked('>I8', at)
    local flags, replays = byte(state, 66), unpacked('>I4', state, 54) + (status == 6 and 0 or 1)
    local tail = sub(state, 67, 68 + #name)
    if flags >= 2 then tail = tail .. sub(state, 69 + #name, 84 + #name) end
    local head = move(old, new, (unpacked('>I4', state, 62)))
    call('HDEL', STATES, old)
    call('HSET', STATES, new, pack('>I8', now) .. '\1' .. at .. at .. NOTHING .. NOTHING .. string.rep('\0', 12)
      .. pack('>I4', replays) .. sub(state, 58, 65) .. char(flags % 2 == 0 and flags + 1 or flags) .. tail)
    call('HSET', IDS, sub(head, 2, 17), new)
    call('ZREM', ENDS[status], old)
    if status == 5 then call('ZREM', DEAD, old) end
    call('ZADD', base .. 'q:' .. name, m.last, new)
    local entry, bytes = read_lane(call('HGET', LANES, name)), unpacked('>I4', state, 58)
    if entry[1] == 0 then
      m.lanes = m.lanes + 1
      lower_heads({ w, name })
    elseif w < entry[5] then
      entry[3] = entry[3] + 1
      call('ZADD', base .. 'x:' .. name, w, new)
      lower_heads({ w, name })
    end
    entry[1], entry[4], entry[5] = entry[1] + 1, entry[4] + bytes, math.max(entry[5], w)
    call('HSET', LANES, name, lane_text(entry))
    m.pending, m.bytes = m.pending + 1, m.bytes + bytes
    if whole_of(name) then call('HINCRBY', PARTS, whole_of(name), 1) end
    places[#places + 1] = new
  end
end
m.t = now
write_sums(m)
-- A caller that had no answer asks again within minutes.
call('SET', receipt, cmsgpack.pack(places), 'PX', 600000)
call('PUBLISH', ARGV[3], ARGV[4])
return answered(places)
