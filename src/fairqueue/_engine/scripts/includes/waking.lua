-- Waking: every script that leaves a group with room wakes min(room, waiters), counting those already woken. A woken
-- lane that cannot take the slot hands the baton on in the same script.
-- @include wake_beside
-- @include wake_one
-- SHARES wake wake_leftovers
local still_full = {} -- group -> slots held, where somebody waits and there is no room

-- One lane a pool goes back to its ring although nothing is known to be free: it finds the group that cannot be
-- trusted and has it reconciled. Those that are empty or move on find nothing.
local function wake_prober(group, pools)
  for _, pool in ipairs(pools) do
    local woken = call('HLEN', woken_key(pool, group)) > 0 and 1 or 0
    while woken == 0 and wakes < most_wakes do woken = wake_one(pool, group) end
  end
end

-- Who waits at a group, for how many of them there is room, and whether it must be reconciled first; nil: nobody.
local function waited_at(group, taken)
  local pools = call('SMEMBERS', k.waiters(group))
  if #pools == 0 then return nil end
  local held, limit, tenants = held_in(group), limit_of(group), 0
  for _, pool in ipairs(pools) do tenants = tenants + call('ZCARD', k.ring(group_scope(pool, group))) end
  if not held then mark_dirty(group, 'dirty') end
  local dirty = dirty_state(group)
  if not dirty and limit and held >= limit then still_full[group] = held end
  rates.watch(group)
  local room = limit and held and limit - held - taken or math.huge
  room = math.min(room, rates.tokens(group))
  return { group = group, pools = pools, room = room, dirty = dirty, tenants = tenants }
end

-- Wakes as many as the group has room for; a group under repair wakes the others when it opens.
local function wake_at(place)
  if place.dirty then return wake_prober(place.group, place.pools) end
  for _, pool in ipairs(place.pools) do
    local room = place.room - call('HLEN', woken_key(pool, place.group))
    while room > 0 and wakes < most_wakes do
      local woken = wake_one(pool, place.group, place.room == math.huge)
      if not woken then break end
      room = room - woken
    end
    group_idle(pool, place.group)
  end
end

-- Does one of those whose turn it is at this place wait for what another of these groups will give away too?
local MOST_LOOKED_AT = 8
local function needs_others(place, pool)
  local turns = math.min(place.room, MOST_LOOKED_AT)
  for _, tenant in ipairs(call('ZRANGE', k.ring(group_scope(pool, place.group)), 0, turns - 1)) do
    local top = call('ZRANGE', waiting_key(pool, place.group, tenant), 0, 0)
    local lane = top[1] and own_lane(top[1], pool, tenant)
    for _, other in ipairs(lane and lane.groups or {}) do
      if other ~= place.group and beside.to_wake[other] then return true end
    end
  end
  return false
end

local function goes_first(place)
  if place.goes_first == nil then
    place.goes_first = false
    for _, pool in ipairs(place.room > 0 and place.pools or {}) do
      place.goes_first = place.goes_first or needs_others(place, pool)
    end
  end
  return place.goes_first
end

-- Wakes at each of these groups (a set): first where somebody waits for another of them too. It gets a slot of both
-- while both have room, or stands with the others when the other one gives its room away; so of such places first
-- where fewest tenants wait, which is the narrower. `taken`: slots that this script took and has not written yet.
local function wake(groups, taken)
  local places = {}
  for group in pairs(groups) do
    local place = waited_at(group, taken or 0)
    if place then
      places[#places + 1] = place
      beside.to_wake[group] = not place.dirty and place.room > 0 and place.room or nil
    end
  end
  guarantees.regain(groups, places)
  table.sort(places, function(a, b)
    if goes_first(a) ~= goes_first(b) then return goes_first(a) end
    if a.tenants ~= b.tenants then return a.tenants < b.tenants end
    return a.group < b.group
  end)
  for _, place in ipairs(places) do
    beside.to_wake[place.group] = nil
    wake_at(place)
  end
end

-- A group that is full although a slot was freed or its limit was raised holds more than it may. What keeps it full may
-- be the leftover of a message that waits there: that one's lane goes back to its ring, to come in over it.
local function wake_leftovers(group)
  if not still_full[group] or still_full[group] > MAX_HOLDERS then return end
  for _, mid in ipairs(call('HKEYS', k.slots(group))) do
    local h = unpack_header(call('HGET', k.head, mid))
    local lane = h and h.state == 'r' and lane_of(h.lane)
    if lane and call('HGET', parked_key(lane), lane.name) == group then
      enter_lane(lane, tonumber(call('ZSCORE', waiting_key(lane.pool, group, lane.tenant), lane.name)), h.seq)
      unpark(lane, group, tonumber(call('ZSCORE', k.ring(group_scope(lane.pool, group)), lane.tenant)))
    end
  end
end
