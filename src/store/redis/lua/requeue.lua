-- Makes ended events pending again under new numbers, in the order given; not fenced. ARGV: what a repetition is known by, the time 8, the
-- channel of wake-ups, what to say there, three times before which what ended is past retention (delivered, dead, suppressed; doubles), the
-- numbers. The answer has an event's number, state and head for each, empty ones where it is not there, not ended or past retention; where
-- its group has left the shard, or is about to, nothing is done, and the shard where it is to go stands in the state's place.
local receipt, at, kept = base .. 'c:' .. ARGV[1], ARGV[2], {}
kept[4], kept[5], kept[6] = unpacked('<ddd', ARGV[5])
kept[7] = kept[4]
local m = read_sums()
local function answered(places)
  local out = {}
  for _, n6 in ipairs(places) do
    local state = #n6 == 6 and call('HGET', STATES, n6)
    if #n6 > 6 then
      out[#out + 1], out[#out + 2], out[#out + 3] = '', sub(n6, 7), ''
    elseif state then
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

local now, places, away = math.max(m.t, clock()), {}, aways()

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
  local left = state and away and away[group_of(lane_of(state))]
  if status < 4 or unpacked('>I8', state, 18) <= kept[status] then
    places[#places + 1] = ''
  elseif left then
    places[#places + 1] = old .. left.to
  else
    m.last = m.last + 1
    local new, again = written(m.last), pack('>I8', now) .. sub(requeued(state, at), 9)
    local head = move(old, new, (unpacked('>I4', state, 62)))
    call('HDEL', STATES, old)
    call('HSET', STATES, new, again)
    call('HSET', IDS, sub(head, 2, 17), new)
    call('ZREM', ENDS[status], old)
    if status == 5 then call('ZREM', DEAD, old) end
    queue_event(m, new, again)
    places[#places + 1] = new
  end
end
m.t = now
write_sums(m)
-- A caller that had no answer asks again within minutes.
call('SET', receipt, cmsgpack.pack(places), 'PX', 600000)
call('PUBLISH', ARGV[3], ARGV[4])
return answered(places)
