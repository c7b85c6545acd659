-- audit_pool: a page of the tenants that take turns in a pool: each has lanes, and each of those has ready messages.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local MAX_LANES = 200
if not sound(k.ring('p' .. US .. of), 'zset', of) then return { '0', 1, findings } end
local function check_scope(scope, subject)
  if sound(k.tags(scope), 'zset', subject) then check_tags(k.tags(scope), scope, subject) end
  check_tags(k.ring(scope), scope, subject)
end

if cursor == '0' then
  check_scope('p' .. US .. of, of)
  check_below('p' .. US .. of, of)
  sound(k.deficits(of), 'zset', of)
  local readable = sound(k.blocked(of), 'set', of)
  local listed = call('SISMEMBER', k.pools, of) == 1 -- or it has emptied since the list was read
  if readable and listed and call('EXISTS', k.ring('p' .. US .. of), k.blocked(of)) == 0 then
    found('MOVES', of, 'the pool is listed but nobody takes turns or waits there')
    if fix == 1 then call('SREM', k.pools, of) end
  end
end
local page = call('ZSCAN', k.ring('p' .. US .. of), cursor, 'COUNT', 20)
local members = page[2]
for i = 1, #members, 2 do
  local scope = 't' .. US .. of .. US .. members[i]
  local readable = sound(k.ring(scope), 'zset', members[i])
  if readable then check_scope(scope, members[i]) end
  local names = readable and call('ZRANGE', k.ring(scope), 0, MAX_LANES - 1) or {}
  if readable and #names == 0 then
    found('MOVES', members[i], 'the tenant takes turns in pool ' .. of .. ' but has no claimable lane')
    if fix == 1 then tenant_changed(lane_of(members[i] .. US .. 'none' .. US .. of)) end
    if fix == 1 and not is_name(members[i]) then call('ZREM', k.ring('p' .. US .. of), members[i]) end
  end
  for _, name in ipairs(names) do
    if not own_lane(name, of, members[i]) then
      found('MOVES', members[i], 'a lane that is not the tenant\'s takes turns among its lanes: ' .. name)
      if fix == 1 then call('ZREM', k.ring(scope), name) end
    end
    local size = try('ZCARD', k.lane(name))
    if not failed(size) and size == 0 then
      found('MOVES', 'lane' .. US .. name, 'the lane takes turns but has nothing ready')
      if fix == 1 and own_lane(name, of, members[i]) then lane_emptied(lane_of(name)) end
    end
  end
end
if fix == 1 then flush_moves() end
return { page[1], #members / 2, findings }
