-- audit_pool: a page of the tenants that take turns in a pool: each has lanes, each lane has ready messages,
-- and no lane takes turns while its key is broken.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include begin
-- @include names
-- @include header
-- @include lease
-- @include policy
-- @include turns
-- @include bell
-- @include ring
-- @include gates
-- @include waiting
-- @include counters
-- @include slots
-- @include places
-- @include audit

local MAX_LANES = 200
if not sound(k.ring('p' .. US .. of), 'zset', of) then return { '0', 1, findings } end
local page = call('ZSCAN', k.ring('p' .. US .. of), cursor, 'COUNT', 20)
local members = page[2]
for i = 1, #members, 2 do
  local scope = 't' .. US .. of .. US .. members[i]
  local readable = sound(k.ring(scope), 'zset', members[i])
  local names = readable and call('ZRANGE', k.ring(scope), 0, MAX_LANES - 1) or {}
  if readable and #names == 0 then
    found('MOVES', members[i], 'the tenant takes turns in pool ' .. of .. ' but has no claimable lane')
    if fix == 1 then tenant_changed(lane_of(members[i] .. US .. 'none' .. US .. of)) end
  end
  for _, name in ipairs(names) do
    local size = try('ZCARD', k.lane(name))
    if failed(size) then
      found('KEEP', 'lane' .. US .. name, 'the lane key holds a ' .. call('TYPE', k.lane(name)).ok .. ', not a zset')
      if fix == 1 then call('UNLINK', k.lane(name)) end
    elseif size == 0 then
      found('MOVES', 'lane' .. US .. name, 'the lane takes turns but has nothing ready')
    end
    for _, mid in ipairs(failed(size) and {} or call('ZRANGE', k.lane(name), 0, 9)) do
      local h = unpack_header(call('HGET', k.head, mid))
      if not h or h.state ~= 'r' or h.lane ~= name then
        found('KEEP', mid, 'the lane lists a message that is not ready in it')
        if fix == 1 then call('ZREM', k.lane(name), mid) end
      end
    end
    if fix == 1 then lane_emptied(lane_of(name)) end
  end
end
if fix == 1 then flush_moves() end
return { page[1], #members / 2, findings }
