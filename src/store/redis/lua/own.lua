-- Who owns the shard. ARGV: what is asked, and what it needs.
--
--   claim NODE LEASE X   the shard for a node for so many microseconds: the new epoch, or the owner and what is left of its lease; X is
--                        what a repetition is known by
--   renew EPOCH LEASE    1, or 0 where it is another epoch's
--   release EPOCH        1, or 0 where it is another epoch's
local m, asked = read_sums(), ARGV[1]
local owner, now = base .. 'owner', clock()
if asked == 'claim' then
  local node, lease = ARGV[2], tonumber(ARGV[3])
  local holder = call('HGET', owner, 'node')
  if holder == node and call('HGET', owner, 'claim') == ARGV[4] then return { 1, string.format('%.0f', m.epoch) } end
  if holder and holder ~= node and m.till > now then return { 0, holder, string.format('%.0f', m.till - now) } end
  if holder then
    -- A node that restarts may have sent something until just now, whatever its lease says.
    call('HSET', owner, 'before', holder, 'since', string.format('%.0f', m.till), 'released', 0)
  end
  call('HSET', owner, 'node', node, 'claim', ARGV[4])
  m.epoch, m.till, m.call, m.answer = m.epoch + 1, now + lease, 0, 0
  write_sums(m)
  return { 1, string.format('%.0f', m.epoch) }
end
if m.epoch ~= tonumber(ARGV[2]) or not call('HGET', owner, 'node') then return 0 end
if asked == 'renew' then
  m.till = now + tonumber(ARGV[3])
else
  call('HSET', owner, 'before', call('HGET', owner, 'node'), 'since', string.format('%.0f', now), 'released', 1)
  call('HDEL', owner, 'node')
  -- The next owner has another epoch; until then nobody settles.
  m.till, m.epoch = 0, m.epoch + 1
end
write_sums(m)
return 1
