-- Events that come from another shard: pending ones of a group that moves, or an ended one that is made pending again after its group has
-- moved. ARGV: what is asked, the group, the channel of wake-ups, what to say there, the time (8), then for each event four: its state, its
-- head, the rest, its notes as `move.lua` reads them.
--
--   move      they come, in their order, behind what is here
--   requeue   the same, unless the group has left this shard: then its next one is the answer
--   open      the group is here from now on; no events
--   forget    nothing comes: this event, whose number follows, has ended here and is pending elsewhere
--
-- An event whose id is here already is not stored again. The answer: rows, and the sums.
local asked, group = ARGV[1], ARGV[2]
local m = read_sums()
if asked == 'open' then
  call('HDEL', AWAY, group)
  return 1
end
if asked == 'forget' then
  local state = call('HGET', STATES, ARGV[6])
  local status = state and byte(state, 9) or 0
  if status > 3 then
    forget_event(ARGV[6], state)
    call('ZREM', ENDS[status], ARGV[6])
    call('ZREM', DEAD, ARGV[6])
  end
  return 1
end
local found = asked == 'requeue' and call('HGET', AWAY, group)
if found and read_away(found).stage == GONE then return { read_away(found).to } end

local now, numbers, states = math.max(m.t, clock()), {}, {}
-- What waited for a further attempt is fresh: the sets of this shard know nothing of it yet, and its owner reads on by numbers.
local function state_here(state)
  if asked == 'requeue' then return requeued(state, ARGV[5]) end
  return sub(state, 1, 8) .. '\1' .. sub(state, 10, 25) .. NOTHING .. sub(state, 34)
end

for i = 6, #ARGV, 4 do
  local id = sub(ARGV[i + 1], 2, 17)
  local n6 = call('HGET', IDS, id)
  if not n6 then
    m.last = m.last + 1
    n6 = written(m.last)
    local state, b = pack('>I8', now) .. sub(state_here(ARGV[i]), 9), sub(n6, 6)
    local fields, noted = { 'h' .. b, ARGV[i + 1], 'b' .. b, ARGV[i + 2] }, unpacked('>I4', state, 62)
    local notes, at, k = ARGV[i + 3], 1, math.max(0, noted - 256)
    while at <= #notes do
      local length = unpacked('<I4', notes, at)
      fields[#fields + 1], fields[#fields + 2] = 'a' .. b .. char(k % 256), sub(notes, at + 4, at + 3 + length)
      at, k = at + 4 + length, k + 1
    end
    put_page(page_of(n6), fields, now)
    call('HSET', STATES, n6, state)
    call('HSET', IDS, id, n6)
    queue_event(m, n6, state)
  end
  numbers[#numbers + 1], states[#states + 1] = n6, call('HGET', STATES, n6)
end
m.t = now
write_sums(m)
call('PUBLISH', ARGV[3], ARGV[4])
return { rows(numbers, states), told(m, oldest_of_all()) }
