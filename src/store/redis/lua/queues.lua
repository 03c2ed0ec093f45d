-- What waits, as rows of number, state and head. ARGV: which, where to begin, how many at most.
--
--   load  fresh events of a lane (the fourth) behind a number      open  open ones behind a number
--   tail  fresh events of all lanes behind a number                due   retrying ones from a bound of their set on
--
-- The answer: how far it looked (six bytes; empty: to the end), rows, the last number there is.
local asked, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- Events that one call looks at, whatever becomes of them.
local LOOK = math.max(limit, 1000)
local last = read_sums().last
local numbers, looked = {}, ''
if asked == 'due' then
  for i, member in ipairs(call('ZRANGEBYLEX', DUE, from, '+', 'LIMIT', 0, limit)) do numbers[i] = sub(member, 9) end
elseif asked == 'open' then
  numbers = call('ZRANGEBYSCORE', OPEN, '(' .. from, '+inf', 'LIMIT', 0, limit)
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
    if state and byte(state, 9) == 1 then
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
