-- Looks through events in the order of their numbers. ARGV: up or down; the number behind which to begin (empty: from the end); a bound on
-- the time of their commit (empty: none) and whether that very time is within it (0, 1); the statuses wanted (a byte each; empty: all); the
-- group wanted (empty: any); how many at most; how many to look at; received since, and before (empty: any time); texts that the head has.
-- What fits may be a little more than what is asked for, never less: the caller looks again.
--
-- The answer: the state and head of the last one looked at with its number (nothing when it came to the end), rows.
local down, behind, bound, within = ARGV[1] == 'down', ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local wanted, group, limit, budget = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local since, till = tonumber(ARGV[9]), tonumber(ARGV[10])
local statuses = {}
for i = 1, #wanted do statuses[byte(wanted, i)] = true end

-- Whether an event's commit is on the far side of the bound.
local function beyond(state)
  if not bound then return true end
  local t = unpacked('>I8', state)
  if t == bound then return within end
  if down then return t < bound end
  return t > bound
end
local function of_group(state)
  if group == '' then return true end
  local lane = lane_of(state)
  -- What waits in an overflow lane belongs to whom its head says; the caller looks.
  return sub(lane, 1, #group + 1) == group .. '\0' or sub(lane, 1, 10) == '~overflow-'
end

-- Seven bits a byte, low ones first, behind the version and the id.
local function received(head)
  local value, unit, at = 0, 1, 18
  while true do
    local b = byte(head, at)
    value = value + b % 128 * unit
    if b < 128 then return value end
    unit, at = unit * 128, at + 1
  end
end
local function fits(n6)
  if not since and not till and #ARGV < 11 then return true end
  local head = call('HGET', base .. 'p:' .. page_of(n6), 'h' .. sub(n6, 6))
  if not head then return false end
  if since and received(head) < since then return false end
  if till and received(head) >= till then return false end
  for i = 11, #ARGV do
    if not string.find(head, ARGV[i], 1, true) then return false end
  end
  return true
end

local edge = behind ~= '' and number(behind) or nil
local first = edge and math.floor(edge / 256)
if bound and not edge then
  -- Pages are known by the time of their first event, so this one may begin before the bound; those of one batch have one time.
  local found = call('ZREVRANGEBYSCORE', TIMES, (down and '' or '(') .. ARGV[3], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if down and not found[1] then return { '', {} } end
  for _, page in ipairs(found[1] and call('ZRANGEBYSCORE', TIMES, found[2], found[2]) or {}) do
    page = tonumber(page)
    if not first or (down and page > first) or (not down and page < first) then first = page end
  end
end

local numbers, states, looked, at = {}, {}, 0, nil
-- Looks at events; whether that is enough.
local function look(fields)
  for i, state in ipairs(many_of('HMGET', STATES, fields)) do
    if state and beyond(state) then
      looked, at = looked + 1, { fields[i], state }
      if (wanted == '' or statuses[byte(state, 9)]) and of_group(state) and fits(fields[i]) then
        numbers[#numbers + 1], states[#states + 1] = fields[i], state
      end
      if #numbers == limit or looked >= budget then return true end
    end
  end
end
local function look_at_page(page)
  local fields = {}
  for b = 0, 255 do
    local n = page * 256 + (down and 255 - b or b)
    if not edge or (down and n < edge) or (not down and n > edge) then fields[#fields + 1] = written(n) end
  end
  return look(fields)
end

local range = down and 'ZREVRANGEBYSCORE' or 'ZRANGEBYSCORE'
local stop, full, from = down and '-inf' or '+inf', false, 0
-- Dead and open events are few among many, and have a set of their own.
local set = wanted == '\5' and DEAD or wanted == '\2' and OPEN
local start = down and '+inf' or '-inf'
if set then
  if edge then start = '(' .. string.format('%.0f', edge) elseif first then start = first * 256 + (down and 255 or 0) end
else
  start = first or start
end
while not full do
  local some = call(range, set or PAGES, start, stop, 'LIMIT', from, set and 256 or 8)
  if #some == 0 then break end
  from = from + #some
  if set then
    full = look(some)
  else
    for _, page in ipairs(some) do
      full = look_at_page(tonumber(page))
      if full then break end
    end
  end
end
if not full then return { '', rows(numbers, states) } end
local last = rows({ at[1] }, { at[2] })
return { last, rows(numbers, states) }
