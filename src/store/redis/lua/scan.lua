-- Looks through events in the order of their numbers. ARGV: up or down; the number behind which to begin (empty: from the end); a bound on
-- the time of their commit (empty: none) and whether that very time is within it (0, 1); the statuses wanted (a byte each; empty: all); the
-- group wanted (empty: any); how many at most; how many to look at.
--
-- The answer: the state and head of the last one looked at with its number (nothing when it came to the end), rows.
local down, behind, bound, within = ARGV[1] == 'down', ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local wanted, group, limit, budget = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
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
local function page_of_walk(page)
  local fields = {}
  for b = 0, 255 do
    local n = page * 256 + (down and 255 - b or b)
    if not edge or (down and n < edge) or (not down and n > edge) then fields[#fields + 1] = written(n) end
  end
  for i, state in ipairs(many_of('HMGET', STATES, fields)) do
    if state and beyond(state) then
      looked, at = looked + 1, { fields[i], state }
      if (wanted == '' or statuses[byte(state, 9)]) and of_group(state) then
        numbers[#numbers + 1], states[#states + 1] = fields[i], state
      end
      if #numbers == limit or looked >= budget then return true end
    end
  end
end

local full, from = false, 0
while not full do
  local pages
  if down then
    pages = call('ZREVRANGEBYSCORE', PAGES, first or '+inf', '-inf', 'LIMIT', from, 8)
  else
    pages = call('ZRANGEBYSCORE', PAGES, first or '-inf', '+inf', 'LIMIT', from, 8)
  end
  if #pages == 0 then break end
  from = from + #pages
  for _, page in ipairs(pages) do
    full = page_of_walk(tonumber(page))
    if full then break end
  end
end
if not full then return { '', rows(numbers, states) } end
local last = rows({ at[1] }, { at[2] })
return { last, rows(numbers, states) }
