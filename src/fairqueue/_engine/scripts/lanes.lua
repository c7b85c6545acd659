-- lanes: the lanes with ready messages of a tenant, over all pools; nothing is written.
-- ARGV schema now:int tenant
-- FLAGS no-writes,allow-oom
-- REPLY (lane, messages, instant of the next one or -1, group it waits at or '') for each
-- @include begin
-- @include names
-- @include header
-- @include look

local reply = {}
local function add(name, group)
  if not own_lane(name, lane_of(name).pool, tenant) then return end
  local size, oldest = look_at(name)
  reply[#reply + 1] = { name, size, oldest and int(oldest) or '-1', group }
end
for _, pool in ipairs(call('SMEMBERS', k.pools)) do
  local of = pool .. US .. tenant
  for _, name in ipairs(call('ZRANGE', k.ring('t' .. US .. of), 0, -1)) do add(name, '') end
  local parked = call('HGETALL', k.parked(of))
  for i = 1, #parked, 2 do add(parked[i], parked[i + 1]) end
end
return reply
