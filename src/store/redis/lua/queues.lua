-- What waits, as rows of number, state and head. ARGV: which, where to begin, how many at most.
--
--   load  fresh events of a lane (the fourth) behind a number      open  open ones behind a number
--   tail  fresh events of all lanes behind a number                due   retrying ones from a bound of their set on
--
-- The answer: how far it looked (six bytes; empty: to the end), rows, the last number there is. What is of a group that is on its way to
-- another shard is passed by.
local asked, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- Events that one call looks at, whatever becomes of them.
local LOOK = math.max(limit, 1000)
local last = read_sums().last
local numbers, looked, away = {}, '', aways()
local function stays(n6)
  local state = away and call('HGET', STATES, n6)
  return not state or not leaves(away, lane_of(state))
end
if asked == 'due' then
  local at = 0
  repeat
    local some = call('ZRANGEBYLEX', DUE, from, '+', 'LIMIT', at, limit)
    for _, member in ipairs(some) do
      if #numbers < limit and stays(sub(member, 9)) then numbers[#numbers + 1] = sub(member, 9) end
    end
    at = at + #some
  until #numbers == limit or #some < limit
elseif asked == 'open' then
  numbers = call('ZRANGEBYSCORE', OPEN, '(' .. from, '+inf', 'LIMIT', 0, limit)
elseif asked == 'load' and leaves(away, ARGV[4]) then
  numbers = {}
elseif asked == 'load' then
  numbers = call('ZRANGEBYSCORE', base .. 'q:' .. ARGV[4], '(' .. from, '+inf', 'LIMIT', 0, LOOK)
  if #numbers == LOOK then looked = numbers[LOOK] end
else
  local to = math.min(last, tonumber(from) + LOOK)
  for n = tonumber(from) + 1, to do numbers[#numbers + 1] = written(n) end
  looked = written(math.max(to, tonumber(from)))
end
local states = many_of('HMGET', STATES, numbers)
if asked == 'load' or asked == 'tail' then
  local fresh, theirs = {}, {}
  for i, state in ipairs(states) do
    if state and byte(state, 9) == 1 and not leaves(away, lane_of(state)) then
      if #fresh == limit then
        looked = fresh[limit] or looked
        break
      end
      fresh[#fresh + 1], theirs[#theirs + 1] = numbers[i], state
    end
  end
  numbers, states = fresh, theirs
end
return { looked, rows(numbers, states), written(last) }
