-- A group leaves this shard: what it has waiting goes to another one. Fenced. ARGV: the epoch, what is asked, and what it needs.
--
--   begin GROUP TO         from now on nobody delivers it from here. Only after the owner before gave the shard back with nothing in flight
--   read GROUP MAX BYTES   what waits of it: the first events by number, each as number, state, head, rest and its notes, each note behind
--                          its length (4)
--   strike NUMBERS         these are elsewhere now
--   close GROUP            what comes has to wait
--   finish GROUP           what comes goes elsewhere; where nothing is left
--
-- The answer is nothing where the shard is another epoch's; else 1 or what was read, 0 where it may not be, and `begin` says where a group
-- is that has gone already.
local m, asked, group = read_sums(), ARGV[2], ARGV[3]
if m.epoch ~= tonumber(ARGV[1]) then return false end
local found = call('HGET', AWAY, group)
local away = found and read_away(found)
local function set(stage, to) call('HSET', AWAY, group, stage .. ' ' .. to) end

-- Its lanes here: its own, and its parts where it has any.
local function lanes()
  local names, own = {}, group .. '\0'
  if call('HEXISTS', LANES, own) == 1 then names[1] = own end
  if call('HEXISTS', PARTS, group) == 1 then
    for _, name in ipairs(call('ZRANGE', HEADS, 0, -1)) do
      if name ~= own and sub(name, 1, #own) == own then names[#names + 1] = name end
    end
  end
  return names
end

if asked == 'begin' then
  if away then return away.stage == GONE and { away.to } or 1 end
  local released = call('HGET', base .. 'owner', 'released')
  if released == '0' then return 0 end
  for _, state in ipairs(many_of('HMGET', STATES, call('ZRANGE', OPEN, 0, -1))) do
    if state and group_of(lane_of(state)) == group then return 0 end
  end
  set(MOVING, ARGV[4])
  return 1
end

if asked == 'read' then
  local numbers, limit, bytes = {}, tonumber(ARGV[4]), tonumber(ARGV[5])
  for _, name in ipairs(lanes()) do
    for _, n6 in ipairs(call('ZRANGE', base .. 'q:' .. name, 0, limit - 1)) do numbers[#numbers + 1] = n6 end
  end
  table.sort(numbers, function(a, b) return number(a) < number(b) end)
  local out = {}
  for i = 1, math.min(limit, #numbers) do
    local n6 = numbers[i]
    local state, b = call('HGET', STATES, n6), sub(n6, 6)
    local noted, fields, notes = unpacked('>I4', state, 62), { 'h' .. b, 'b' .. b }, {}
    for k = math.max(0, noted - 256), noted - 1 do fields[#fields + 1] = 'a' .. b .. char(k % 256) end
    local parts = call('HMGET', base .. 'p:' .. page_of(n6), unpack(fields))
    for k = 3, #fields do notes[k - 2] = pack('<I4', #(parts[k] or '')) .. (parts[k] or '') end
    out[#out + 1] = { n6, state, parts[1] or '', parts[2] or '', table.concat(notes) }
    bytes = bytes - #(parts[2] or '')
    if bytes <= 0 then break end
  end
  return out
end

if asked == 'strike' then
  local entries = {}
  for i = 1, #ARGV[3], 6 do
    local n6 = sub(ARGV[3], i, i + 5)
    local state = call('HGET', STATES, n6)
    if state then
      local name, status, size = lane_of(state), byte(state, 9), unpacked('>I4', state, 58)
      forget_event(n6, state)
      if status <= 3 then
        local l = entries[name] or read_lane(call('HGET', LANES, name))
        entries[name] = l
        l[1], l[4] = l[1] - 1, l[4] - size
        if status == 3 then
          l[2] = l[2] - 1
          call('ZREM', DUE, sub(state, 26, 33) .. n6)
        end
        if status == 2 then call('ZREM', OPEN, n6) end
        call('ZREM', base .. 'q:' .. name, n6)
        if l[3] > 0 then l[3] = l[3] - call('ZREM', base .. 'x:' .. name, n6) end
        m.pending, m.bytes = m.pending - 1, m.bytes - size
        local whole = whole_of(name)
        if whole and call('HINCRBY', PARTS, whole, -1) <= 0 then call('HDEL', PARTS, whole) end
      end
    end
  end
  for name, l in pairs(entries) do
    if l[1] <= 0 then
      call('HDEL', LANES, name)
      call('ZREM', HEADS, name)
      m.lanes = m.lanes - 1
    else
      call('HSET', LANES, name, lane_text(l))
    end
  end
  write_sums(m)
  return 1
end

if not away then return 0 end
if asked == 'close' then
  if away.stage == MOVING then set(CLOSING, away.to) end
  return 1
end
if away.stage == MOVING or #lanes() > 0 then return 0 end
set(GONE, away.to)
return 1
