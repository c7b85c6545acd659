-- group_state: a limit group as it is now; nothing is written. Waiting messages are counted lane by lane in
-- the first 2,000 lanes that wait; further lanes count one each.
-- ARGV schema now:int group
-- FLAGS no-writes,allow-oom
-- REPLY own limit, declared default, held or -1 when the key is broken, messages waiting, holders
-- @include begin
-- @include names

local MAX_LANES = 2000
local own = call('HMGET', k.limits, group, limit_of_group(group))
local held = try('HLEN', k.slots(group))
local holders = try('HKEYS', k.slots(group))
if failed(held) or failed(holders) then held, holders = -1, {} end

local looked, waiting = 0, 0
for _, pool in ipairs(call('SMEMBERS', k.waiters(group))) do
  for _, tenant in ipairs(call('ZRANGE', k.ring(group_scope(pool, group)), 0, -1)) do
    for _, lane in ipairs(call('ZRANGE', waiting_key(pool, group, tenant), 0, -1)) do
      looked = looked + 1
      local size = looked <= MAX_LANES and try('ZCARD', k.lane(lane)) or 1
      local promised = call('HGET', k.woken(pool .. US .. group), lane)
      if promised and not failed(size) then size = size - (tonumber(string.match(promised, '^%d+')) or 1) end
      waiting = waiting + (failed(size) and 0 or size)
    end
  end
end
return { own[1], own[2], held, waiting, holders }
