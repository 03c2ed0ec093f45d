-- What all scripts share. KEYS[1] is the shard's `m`; every other key is named from it, under the same hash tag.
-- The layout is written down at the top of layout.rs. Bytes are compared for equality alone: Lua orders texts by the locale.
local call, sub, byte, char = redis.call, string.sub, string.byte, string.char
local pack, unpacked = struct.pack, struct.unpack
local base = sub(KEYS[1], 1, -2)
local STATES, IDS, LANES, HEADS, OPEN, DUE = base .. 's', base .. 'i', base .. 'l', base .. 'h', base .. 'o', base .. 'r'
local PAGES, TIMES, PARTS, DEAD, AWAY = base .. 'pages', base .. 'times', base .. 'g', base .. 'k', base .. 'w'
local ENDS = { [4] = base .. 'e:d', [5] = base .. 'e:x', [6] = base .. 'e:s', [7] = base .. 'e:d' }
local NOTHING = '\0\0\0\0\0\0\0\0'

-- A number as it stands in members, fields and values: six bytes, high ones first.
local function written(n) return pack('>I2I4', math.floor(n / 4294967296), n % 4294967296) end
local function number(text)
  local high, low = unpacked('>I2I4', text)
  return high * 4294967296 + low
end
local function page_of(n6) return math.floor(number(n6) / 256) end

-- The sums of the shard: one small value, read and written whole.
local function read_sums()
  local text = call('GET', KEYS[1])
  local m = {}
  if text then
    m.last, m.t, m.pending, m.bytes, m.lanes, m.epoch, m.call, m.answer, m.till = unpacked('<ddddddddd', text)
  else
    m.last, m.t, m.pending, m.bytes, m.lanes, m.epoch, m.call, m.answer, m.till = 0, 0, 0, 0, 0, 0, 0, 0, 0
  end
  return m
end
local function write_sums(m)
  call('SET', KEYS[1], pack('<ddddddddd', m.last, m.t, m.pending, m.bytes, m.lanes, m.epoch, m.call, m.answer, m.till))
end
-- Now, in microseconds.
local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
-- What callers learn of the sums; `oldest` is -1 where nothing waits and -2 where it was not looked at.
local function told(m, oldest) return pack('<dddd', m.pending, m.lanes, m.bytes, oldest) end
local function oldest_of_all()
  local first = call('ZRANGE', HEADS, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or -1
end

-- A command with any number of arguments: Lua's stack takes some thousands.
local function many(command, key, list)
  for from = 1, #list, 4000 do call(command, key, unpack(list, from, math.min(from + 3999, #list))) end
end
local function many_of(command, key, fields)
  if #fields <= 4000 then return #fields > 0 and call(command, key, unpack(fields)) or {} end
  local all = {}
  for from = 1, #fields, 4000 do
    for _, value in ipairs(call(command, key, unpack(fields, from, math.min(from + 3999, #fields)))) do all[#all + 1] = value end
  end
  return all
end

-- A lane's sums: pending, retrying, out of order, bytes, the latest time since when one of them waits.
local function read_lane(text)
  if not text then return { 0, 0, 0, 0, -1 } end
  return { unpacked('<I4I4I4dd', text) }
end
local function lane_text(l) return pack('<I4I4I4dd', l[1], l[2], l[3], l[4], l[5]) end
-- The lane of a state; its group where it is a part of one.
local function lane_of(state) return sub(state, 69, 68 + unpacked('>I2', state, 67)) end
local function whole_of(lane)
  local stop = string.find(lane, '\0', 1, true)
  if stop < #lane then return sub(lane, 1, stop - 1) end
end
local function group_of(lane) return sub(lane, 1, string.find(lane, '\0', 1, true) - 1) end

-- Groups that leave this shard, or have left it: by their names, how far that is and to where.
local MOVING, CLOSING, GONE = 1, 2, 3
local function read_away(text)
  local stage, to = string.match(text, '^(%d) (%d+)$')
  return { stage = tonumber(stage), to = tonumber(to) }
end
-- All of them; nothing where there are none, which is nearly always so.
local function aways()
  if call('EXISTS', AWAY) == 0 then return nil end
  local found, all = {}, call('HGETALL', AWAY)
  for i = 1, #all, 2 do found[all[i]] = read_away(all[i + 1]) end
  return found
end
-- Whether what is here of a lane's group is on its way elsewhere: then nobody delivers it from here.
local function leaves(away, lane)
  local one = away and away[group_of(lane)]
  return one and one.stage ~= GONE
end
-- Since when the event waits that waits longest in a lane. Events come nearly always in the order of their receipt: then it is the first.
-- Those that came later than younger ones stand in a set of their own.
local function oldest_of(lane, l)
  local first = call('ZRANGE', base .. 'q:' .. lane, 0, 0)[1]
  local state = first and call('HGET', STATES, first)
  local oldest = state and unpacked('>I8', state, 10) or -1
  if l[3] > 0 then
    local late = tonumber(call('ZRANGE', base .. 'x:' .. lane, 0, 0, 'WITHSCORES')[2])
    if late and (oldest < 0 or late < oldest) then oldest = late end
  end
  return oldest
end

-- Sets of lanes by their oldest event are only ever lowered here: what stands there is never later than the truth.
local function lower_heads(heads)
  for from = 1, #heads, 4000 do call('ZADD', HEADS, 'LT', unpack(heads, from, math.min(from + 3999, #heads))) end
end
-- Fields of a page, which is listed from its first one on.
local function put_page(page, fields, now)
  local key = base .. 'p:' .. page
  if call('EXISTS', key) == 0 then
    call('ZADD', PAGES, page, page)
    call('ZADD', TIMES, now, page)
  end
  many('HSET', key, fields)
end

-- A page that is empty is listed no more.
local function forget_page(page)
  if call('EXISTS', base .. 'p:' .. page) == 0 then
    call('ZREM', PAGES, page)
    call('ZREM', TIMES, page)
  end
end

-- Number, state and head of each event, one after another.
local function rows(numbers, states)
  local out = {}
  local from = 1
  while from <= #numbers do
    local page, fields, to = page_of(numbers[from]), {}, from
    while to <= #numbers and page_of(numbers[to]) == page do
      fields[#fields + 1] = 'h' .. sub(numbers[to], 6)
      to = to + 1
    end
    local heads = call('HMGET', base .. 'p:' .. page, unpack(fields))
    for at = from, to - 1 do
      out[#out + 1], out[#out + 2], out[#out + 3] = numbers[at], states[at], heads[at - from + 1]
    end
    from = to
  end
  return out
end

-- An event waits in its lane from now on.
local function queue_event(m, n6, state)
  local name, w, bytes = lane_of(state), unpacked('>I8', state, 10), unpacked('>I4', state, 58)
  local l = read_lane(call('HGET', LANES, name))
  call('ZADD', base .. 'q:' .. name, number(n6), n6)
  if l[1] == 0 then
    m.lanes = m.lanes + 1
    lower_heads({ w, name })
  elseif w < l[5] then
    l[3] = l[3] + 1
    call('ZADD', base .. 'x:' .. name, w, n6)
    lower_heads({ w, name })
  end
  l[1], l[4], l[5] = l[1] + 1, l[4] + bytes, math.max(l[5], w)
  call('HSET', LANES, name, lane_text(l))
  m.pending, m.bytes = m.pending + 1, m.bytes + bytes
  if whole_of(name) then call('HINCRBY', PARTS, whole_of(name), 1) end
end
-- An event with all its parts is here no more; sets that it stands in are the caller's.
local function forget_event(n6, state)
  local page, b, noted = base .. 'p:' .. page_of(n6), sub(n6, 6), unpacked('>I4', state, 62)
  local head, fields = call('HGET', page, 'h' .. b), { 'h' .. b, 'b' .. b }
  for k = math.max(0, noted - 256), noted - 1 do fields[#fields + 1] = 'a' .. b .. char(k % 256) end
  if head then call('HDEL', IDS, sub(head, 2, 17)) end
  call('HDEL', STATES, n6)
  call('HDEL', page, unpack(fields))
  forget_page(page_of(n6))
end
-- The state of an ended event that is pending again since `at` (eight bytes): attempts and refusals are counted anew.
local function requeued(state, at)
  local lane, flags, replays = lane_of(state), byte(state, 66), unpacked('>I4', state, 54)
  if byte(state, 9) ~= 6 then replays = replays + 1 end
  local tail = sub(state, 67, 68 + #lane)
  if flags >= 2 then tail = tail .. sub(state, 69 + #lane, 84 + #lane) end
  return sub(state, 1, 8) .. '\1' .. at .. at .. NOTHING .. NOTHING .. string.rep('\0', 12)
    .. pack('>I4', replays) .. sub(state, 58, 65) .. char(flags % 2 == 0 and flags + 1 or flags) .. tail
end

-- The open events, and of each lane: fresh, retrying, bytes, since when its oldest event waits; empty where it has none.
local function lane_sums(names)
  local open, opened, sums = call('ZRANGE', OPEN, 0, -1), {}, {}
  for _, state in ipairs(many_of('HMGET', STATES, open)) do
    local name = lane_of(state)
    opened[name] = (opened[name] or 0) + 1
  end
  for i, found in ipairs(many_of('HMGET', LANES, names)) do
    if found then
      local l = read_lane(found)
      local fresh = l[1] - l[2] - (opened[names[i]] or 0)
      sums[i] = pack('<dddd', fresh, l[2], l[4], oldest_of(names[i], l))
    else
      sums[i] = ''
    end
  end
  return open, sums
end
