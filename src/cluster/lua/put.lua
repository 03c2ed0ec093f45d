-- Changes of people: the last one of a name holds; an empty value ends it.
-- KEYS: changes, version. ARGV: name, value, name, value ...
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return redis.call('INCR', KEYS[2])
