-- Waking: every script that leaves a group with room wakes min(room, waiters), counting those already woken. A woken
-- lane that cannot take the slot hands the baton on in the same script.

-- How many one script may wake: what is short of that is woken by calling again. A script that is not called again may
-- wake one more for every slot it freed and every baton it hands on.
local most_wakes = 200
local wakes = 0

-- How many lanes one script moves from list to list; the others come by way of a claim. A tenant competes at a group as
-- soon as one of its lanes is there.
local most_moves = 32

local still_full = {} -- group -> slots held, where somebody waits and there is no room

local wake
do
  -- Groups that this script will wake at after the one it is at, and that have room.
  local to_wake = {}

  -- A message of the lane may come in over a slot it still has in the group: only a claim looks at that.
  local function has_leftover(lane, group, held)
    if held > MAX_HOLDERS then return true end
    for _, mid in ipairs(call('HKEYS', k.slots(group))) do
      local place = tenant_of(mid) == lane.tenant and try('ZSCORE', k.lane(lane.name), mid)
      if place and not failed(place) then return true end
    end
    return false
  end

  -- Would the lane be kept out at this group? Slots that others were promised are not free.
  local function is_shut(lane, group)
    local limit, held = limit_of(group), held_in(group)
    if not limit or not held or dirty_state(group) then return false end
    local promised = call('HLEN', woken_key(lane.pool, group)) - batons_of(lane, group)
    return held + promised >= limit and not has_leftover(lane, group, held)
  end

  -- Does a lane of the same tenant wait at the group whose turn comes before this one's?
  local function sibling_first(lane, group, lane_tag)
    local top = call('ZRANGE', waiting_key(lane.pool, group, lane.tenant), 0, 0, 'WITHSCORES')
    return top[1] and tonumber(top[2]) <= lane_tag
  end

  -- The turn a lane has at a group that this script will wake at, where it stands on no list: its tenant's tag, if
  -- there is room and nobody has a smaller one.
  local function turn_at(lane, group, lane_tag)
    if sibling_first(lane, group, lane_tag) then return nil end
    local scope = group_scope(lane.pool, group)
    local tag = tag_in(call('ZSCORE', k.ring(scope), lane.tenant))
    tag = tag or policy.tenant_enters(clock(scope), last_tag(scope, lane.tenant), function() return lane_tag end)
    local _, least = first(scope)
    local promised = call('HLEN', woken_key(lane.pool, group))
    if to_wake[group] > promised and tag <= (least or math.huge) then return tag end
  end

  -- The other groups at which a slot is promised to the lane together with the one it is woken at.
  local function turns_beside(lane, group, lane_tag)
    local turns = {}
    for _, other in ipairs(lane.groups) do
      if other ~= group and to_wake[other] then turns[other] = turn_at(lane, other, lane_tag) end
    end
    return turns
  end

  local function promise_at(lane, group, tag, cost)
    local scope = group_scope(lane.pool, group)
    call('SADD', k.waiters(group), lane.pool) -- who takes or hands back the baton forgets the group
    add_baton(lane, group, tag, cost)
    if policy.by_seq then return end
    set_clock(scope, clock(scope))
    local in_ring = call('ZSCORE', k.ring(scope), lane.tenant)
    call('ZADD', in_ring and k.ring(scope) or k.tags(scope), tag + cost, lane.tenant)
  end

  -- A lane that is woken at one group and would be kept out at another moves on to the list there, as it does when
  -- this script has yet to give away what others wait for there and it is not the lane's turn. Through its pool's ring
  -- it would come to that list by the next claim, when the room has gone to who stood there: its tenant would lose a
  -- turn each time one message of its own held both slots. And each lane of a tenant at its own limit that a wider
  -- group wakes would cost a claim.
  local function moved_on(lane, group, turns, lane_tag, tenant_tag)
    if most_moves == 0 then return false end
    for _, other in ipairs(lane.groups) do
      local contended = to_wake[other] and call('EXISTS', k.ring(group_scope(lane.pool, other))) == 1
      if other ~= group and not turns[other] and (contended or is_shut(lane, other)) then
        most_moves = most_moves - 1
        stand_at(lane, other, lane_tag)
        call('ZREM', waiting_key(lane.pool, group, lane.tenant), lane.name)
        wait_on(lane, group, tenant_tag)
        return true
      end
    end
    return false
  end

  -- A tenant is on a group's list without a lane there: left by a script that was cut, or its list was evicted.
  local function list_is_gone(pool, group, tenant)
    for _, at in ipairs(call('HVALS', k.parked(pool .. US .. tenant))) do
      if at == group then to_be_rebuilt() end
    end
  end

  -- A group without a limit promises nothing: whoever waits there goes back to its ring, as often as it likes.
  local function let_go(lane, group, lane_tag, tag, seq)
    set_clock(group_scope(lane.pool, group), tag)
    if call('HEXISTS', parked_key(lane), lane.name) == 1 then enter_lane(lane, lane_tag, seq) end
    unpark(lane, group, tag)
    wakes = wakes + 1
    return 1
  end

  -- Wakes the next lane of the least served tenant at one group in one pool. The group's own virtual time
  -- decides: by the pool's clock, weights would come out equal at a group of limit 1. Returns nil when nobody
  -- waits, else how many were woken (0: what waited there was empty or gone, or moved on).
  local function wake_one(pool, group, unlimited)
    local scope = group_scope(pool, group)
    local tenant, tag = first(scope)
    if not tenant then return nil end
    local waiting = waiting_key(pool, group, tenant)
    local top = call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
    if not top[1] then
      list_is_gone(pool, group, tenant)
      leave(scope, tenant, tag)
      return 0
    end
    local lane = own_lane(top[1], pool, tenant)
    if not lane then
      call('ZREM', waiting, top[1]) -- a stranger: it would be taken off its own list, and met here for ever
      return 0
    end
    local count = batons_of(lane, group)
    local cost, seq = next_in(lane, count)
    if not cost then
      unpark(lane, group, tag)
      tenant_changed(lane)
      return 0
    end
    if unlimited then return let_go(lane, group, tonumber(top[2]), tag, seq) end
    local turns = turns_beside(lane, group, tonumber(top[2]))
    if count == 0 and moved_on(lane, group, turns, tonumber(top[2]), tag) then return 0 end
    set_clock(scope, clock(scope)) -- it goes on when the promise is kept; unwritten, it would be taken from who is next
    -- Before anything is promised to it: cut in between, a lane that takes no turns would keep slots from all others.
    if count == 0 then enter_lane(lane, tonumber(top[2]), seq, true) end
    for other, turn in pairs(turns) do promise_at(lane, other, turn, cost) end
    bells[pool] = true
    add_baton(lane, group, tag, cost)
    -- It stays on the list for its further messages, or a tenant with many lanes would have theirs let in before.
    local _, following = standing(lane, count + 1)
    if following then
      call('ZADD', waiting, policy.lane_served(tonumber(top[2]), cost, following), lane.name)
    else
      call('ZREM', waiting, lane.name)
    end
    local function least()
      local _, of_first = unpack(call('ZRANGE', waiting, 0, 0, 'WITHSCORES'))
      return tonumber(of_first) or tag
    end
    unblock(lane)
    wait_on(lane, group, policy.tenant_served(tag, cost, least))
    wakes = wakes + 1
    return 1
  end

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
    local room = limit and held and limit - held - taken or math.huge
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
        if other ~= place.group and to_wake[other] then return true end
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
  function wake(groups, taken)
    local places = {}
    for group in pairs(groups) do
      local place = waited_at(group, taken or 0)
      if place then
        places[#places + 1] = place
        to_wake[group] = not place.dirty and place.room > 0 and place.room or nil
      end
    end
    table.sort(places, function(a, b)
      if goes_first(a) ~= goes_first(b) then return goes_first(a) end
      if a.tenants ~= b.tenants then return a.tenants < b.tenants end
      return a.group < b.group
    end)
    for _, place in ipairs(places) do
      to_wake[place.group] = nil
      wake_at(place)
    end
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

-- The lane leaves whatever it takes turns in or waits for, and hands its batons on.
local function lane_leaves(lane)
  local tag = tonumber(call('ZSCORE', k.ring(lane.scope), lane.name))
  local parked_at = call('HGET', parked_key(lane), lane.name)
  local batons = hand_back(lane)
  if parked_at then
    unpark(lane, parked_at, tonumber(call('ZSCORE', k.ring(group_scope(lane.pool, parked_at)), lane.tenant)))
    group_idle(lane.pool, parked_at)
  end
  if tag or parked_at then
    leave(lane.scope, lane.name, tag)
    tenant_changed(lane, tonumber(call('ZSCORE', k.ring(lane.pool_scope), lane.tenant)))
  end
  wake(batons)
end

local function lane_emptied(lane)
  if call('EXISTS', k.lane(lane.name)) == 0 then lane_leaves(lane) end
end
