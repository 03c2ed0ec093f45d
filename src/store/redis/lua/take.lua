-- Everything about the shard at one moment, for its new owner. ARGV: the epoch. The answer: nothing where the shard is another epoch's;
-- otherwise the last number, lanes and their sums, the open events, the owner before, the sums.
local m = read_sums()
if m.epoch ~= tonumber(ARGV[1]) then return false end
local names = call('ZRANGE', HEADS, 0, -1)
local open, sums = lane_sums(names)
local states = many_of('HMGET', STATES, open)
local before = call('HMGET', base .. 'owner', 'before', 'since', 'released')
before[4] = string.format('%.0f', clock())
return { written(m.last), names, sums, rows(open, states), before, told(m, oldest_of_all()) }
