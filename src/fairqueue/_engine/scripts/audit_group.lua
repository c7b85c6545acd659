-- audit_group: a page of the slots of a group against the leases, and whether its waiters move. Reconcile
-- repairs both.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local group = of
if not is_pair(group) then found('SLOTS', group, 'the group has no name that a limit gives') end
local held = held_in(group)
if not held then
  found('SLOTS', group, 'the slots key holds a ' .. call('TYPE', k.slots(group)).ok .. ', not a hash')
  return { '0', 1, findings }
end

local function lists(lease)
  for _, listed in ipairs(lane_of(lease.lane).groups) do
    if listed == group then return true end
  end
  return false
end

local page = call('HSCAN', k.slots(group), cursor, 'COUNT', 200)
local slots = page[2]
for i = 1, #slots, 2 do
  local lease = unpack_lease(call('HGET', k.leases, slots[i]))
  if not lease or lease.token ~= slots[i + 1] or not lists(lease) then
    found('SLOTS', group .. US .. slots[i], 'a slot is held without a lease behind it')
  end
end

local function turn_anew(lane)
  lane_leaves(lane)
  local _, seq = next_in(lane)
  if seq then lane_ready(lane, seq) end
end

-- The fields of the batons of each lane. A further baton has the lane's name too.
local function batons_by_lane(pool)
  local by_lane = {}
  for _, name in ipairs(call('HKEYS', woken_key(pool, group))) do
    local lane = string.match(name, '^[^\30]*')
    by_lane[lane] = by_lane[lane] or {}
    table.insert(by_lane[lane], name)
  end
  return by_lane
end

-- Is there a field for each baton that is counted, and no other? Those of no lane would be promised for good.
local function well_counted(pool, lane, fields)
  if not own_lane(lane, pool, tenant_of(lane)) then return false end
  local _, _, _, number = batons_of(lane_of(lane), group)
  local count = string.match(call('HGET', woken_key(pool, group), lane) or '', '^(%d+)\31')
  if call('HEXISTS', woken_key(pool, group), lane) == 1 then count = count or '1' end
  if tonumber(count) ~= #fields then return false end
  for further = 1, #fields - 1 do
    local field = further_baton(lane_of(lane), number + further)
    if call('HEXISTS', woken_key(pool, group), field) == 0 then return false end
  end
  return true
end

-- Slots promised to woken lanes; one that takes no turns would keep its slot from everybody for good.
local function promised(pool)
  local woken, named = 0, string.gsub(group, US, '/')
  for name, fields in pairs(batons_by_lane(pool)) do
    local lane, wrong = lane_of(name), nil
    local ring = k.ring(lane.scope)
    local takes_turns = not sound(ring, 'zset', 'lane' .. US .. name) or call('ZSCORE', ring, name)
    if not well_counted(pool, name, fields) then
      wrong = 'the slots of ' .. named .. ' that are promised to the lane are not as counted'
    elseif not takes_turns then
      wrong = 'a slot of ' .. named .. ' is promised to the lane but it takes no turns'
    end
    if takes_turns then woken = woken + #fields end -- they keep slots from others, however they are counted
    if wrong then
      found('MOVES', 'lane' .. US .. name, wrong)
      if fix == 1 then
        many('HDEL', woken_key(pool, group), fields)
        if own_lane(name, pool, lane.tenant) then turn_anew(lane) end
      end
    end
  end
  return woken
end

-- The lists of one pool at this group can be read.
local function readable(pool)
  local ring_ok = sound(k.ring(group_scope(pool, group)), 'zset', group)
  return sound(woken_key(pool, group), 'hash', group) and ring_ok
end

-- The group's waiters are woken at this instant, or before.
local function wakes_by(at)
  local next_wake = tonumber(call('ZSCORE', k.rated, group))
  return next_wake and next_wake <= at
end

-- So are those who wait for the first token that was not promised to anybody. The group is woken at one instant: that
-- of the pool in which the fewest were woken.
local function token_wakes(pools)
  local promised = math.huge
  for _, pool in ipairs(pools) do
    if call('EXISTS', k.ring(group_scope(pool, group))) == 1 then
      promised = math.min(promised, call('HLEN', woken_key(pool, group)))
    end
  end
  local bucket = rates.of(group)
  -- mended meanwhile, nobody may wait there any more
  if not bucket or promised == math.huge or rates.tokens(group) > promised then return true end
  local at = rates.instant_of(bucket, promised + 1)
  return not at or wakes_by(at)
end

local pools = cursor == '0' and sound(k.waiters(group), 'set', group) and call('SMEMBERS', k.waiters(group)) or {}
for _, pool in ipairs(pools) do
  if readable(pool) then
    local waiting = call('ZCARD', k.ring(group_scope(pool, group)))
    local woken = promised(pool)
    local room = rates.room(group)
    check_tags(k.ring(group_scope(pool, group)), group_scope(pool, group), group)
    check_below(group_scope(pool, group), group)
    if waiting > 0 and dirty_state(group) == 'dirty' then
      -- a group that cannot be trusted is found by a lane that is woken, however full it is
      local evidence = waiting .. ' tenants wait in pool ' .. pool .. ', none was woken to have it repaired'
      if woken == 0 then found('MOVES', group, evidence) end
    elseif waiting > 0 and room > woken and not wakes_by(now) then
      local evidence = waiting .. ' tenants wait in pool ' .. pool .. ', room ' .. tostring(room) .. ', woken ' .. woken
      found('MOVES', group, evidence)
    elseif waiting > 0 and not token_wakes(pools) then
      local evidence = waiting .. ' tenants wait in pool ' .. pool .. ' for a token that wakes nobody when it comes'
      found('MOVES', group, evidence)
    end
  end
end
if fix == 1 then flush_moves() end
return { page[1], #slots / 2, findings }
