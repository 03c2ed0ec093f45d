-- Attempts of lost nodes that may be at the upstream still.
-- KEYS: resting. ARGV: the shard, for how long those that follow rest (ms), then seq, group, seq, group ...
-- Gives all that is known of the shard: group and what is left (ms).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 3, #ARGV, 2 do
  local value = string.format('%.0f %s', now + tonumber(ARGV[2]), ARGV[i + 1])
  redis.call('HSETNX', KEYS[1], ARGV[1] .. ' ' .. ARGV[i], value)
end
local found = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till, group = string.match(all[i + 1], '^(%d+) (.*)$')
  if not till or tonumber(till) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif string.match(all[i], '^(%d+) ') == ARGV[1] then
    found[#found + 1] = { group, tonumber(till) - now }
  end
end
return found
