-- A node says that it lives and asks for slots.
-- KEYS: nodes, version. ARGV: its life, how long it rests (ms), all slots, slots it wants, attempts in flight, what it says of itself.
-- Gives: the time (ms), slots it may use, the version of changes, the other lives and what they say.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lives = redis.call('HGETALL', KEYS[1])
local others, had, said = 0, 0, {}
for i = 1, #lives, 2 do
  local heard, rests, slots = string.match(lives[i + 1], '^(%d+) (%d+) (%d+) ')
  if not heard or now - tonumber(heard) > tonumber(rests) then
    redis.call('HDEL', KEYS[1], lives[i])
  elseif lives[i] == ARGV[1] then
    had = tonumber(slots)
  else
    others = others + tonumber(slots)
    said[#said + 1] = lives[i]
    said[#said + 1] = lives[i + 1]
  end
end
-- The rule of cluster::plan::grant.
local free = math.max(0, tonumber(ARGV[3]) - others)
local granted = math.max(math.min(tonumber(ARGV[4]), free), math.min(tonumber(ARGV[5]), had))
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s %d %s', now, ARGV[2], granted, ARGV[6]))
return { now, granted, tonumber(redis.call('GET', KEYS[2]) or '0'), said }
