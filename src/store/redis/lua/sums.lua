-- The sums of the shard. ARGV: three times before which what ended is past retention (delivered, dead, suppressed). The answer: the sums, and
-- how many ended events are kept. What lanes are known to have waited for is corrected on the way, as far as it decides the answer.
local m, oldest = read_sums(), -1
for _ = 1, 64 do
  local first = call('ZRANGE', HEADS, 0, 0, 'WITHSCORES')
  if #first == 0 then break end
  oldest = oldest_of(first[1], read_lane(call('HGET', LANES, first[1])))
  if oldest == tonumber(first[2]) or oldest < 0 then break end
  call('ZADD', HEADS, string.format('%.0f', oldest), first[1])
  oldest = tonumber(first[2])
end
local history = 0
for i, status in ipairs({ 4, 5, 6 }) do history = history + call('ZCOUNT', ENDS[status], '(' .. ARGV[i], '+inf') end
return { told(m, oldest), history, written(m.last) }
