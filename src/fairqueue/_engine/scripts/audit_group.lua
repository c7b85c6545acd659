-- audit_group: a page of the slots of a group against the leases, and whether its waiters move. Reconcile
-- repairs both.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local group = of
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

-- Slots promised to woken lanes; one that takes no turns would keep its slot from everybody for good.
local function promised(pool)
  local woken = 0
  for _, name in ipairs(call('HKEYS', woken_key(pool, group))) do
    local lane = lane_of(string.match(name, '^[^\30]+')) -- a further baton has the lane's name too
    local ring = k.ring(lane.scope)
    if not sound(ring, 'zset', 'lane' .. US .. lane.name) or call('ZSCORE', ring, lane.name) then
      woken = woken + 1
    elseif name == lane.name then
      local named = string.gsub(group, US, '/')
      found('MOVES', 'lane' .. US .. name, 'a slot of ' .. named .. ' is promised to the lane but it takes no turns')
      if fix == 1 then
        lane_leaves(lane)
        local _, seq = next_in(lane)
        if seq then lane_ready(lane, seq) end
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

local pools = cursor == '0' and sound(k.waiters(group), 'set', group) and call('SMEMBERS', k.waiters(group)) or {}
local limit = limit_of(group)
for _, pool in ipairs(pools) do
  if readable(pool) then
    local waiting = call('ZCARD', k.ring(group_scope(pool, group)))
    local woken = promised(pool)
    local room = limit and limit - held or math.huge
    if waiting > 0 and room > woken then
      local evidence = waiting .. ' tenants wait in pool ' .. pool .. ', room ' .. tostring(room) .. ', woken ' .. woken
      found('MOVES', group, evidence)
    end
  end
end
return { page[1], #slots / 2, findings }
