-- Everything about the shard at one moment, for its new owner. ARGV: the epoch. The answer: nothing where the shard is another epoch's;
-- otherwise the last number, lanes and their sums, the open events, the owner before, the sums, and the groups that are on their way
-- elsewhere, each with how far that is and to where. Their lanes are not among the lanes.
local m = read_sums()
if m.epoch ~= tonumber(ARGV[1]) then return false end
local names, away = call('ZRANGE', HEADS, 0, -1), aways()
if away then
  local stay = {}
  for _, name in ipairs(names) do
    if not leaves(away, name) then stay[#stay + 1] = name end
  end
  names = stay
end
local open, sums = lane_sums(names)
local states = many_of('HMGET', STATES, open)
local before = call('HMGET', base .. 'owner', 'before', 'since', 'released')
before[4] = string.format('%.0f', clock())
local leaving = {}
for group, one in pairs(away or {}) do
  if one.stage ~= GONE then leaving[#leaving + 1] = { group, one.stage, one.to } end
end
return { written(m.last), names, sums, rows(open, states), before, told(m, oldest_of_all()), leaving }
