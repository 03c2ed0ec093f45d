-- Lanes of the shard. ARGV: nothing: the names of all, in no order, and the shard's sums; names: the sums of each, empty where it is gone.
if #ARGV == 0 then return { call('ZRANGE', HEADS, 0, -1), told(read_sums(), -2) } end
local _, sums = lane_sums(ARGV)
return sums
