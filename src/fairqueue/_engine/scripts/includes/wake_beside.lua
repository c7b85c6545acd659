-- The other groups of a lane that is woken at one: it gets a slot of those too, or moves on to where it is kept out.
-- SHARES most_moves beside

-- How many lanes one script moves from list to list; the others come by way of a claim. A tenant competes at a group as
-- soon as one of its lanes is there.
local most_moves = 32
local beside = {
  to_wake = {}, -- groups that this script will wake at after the one it is at, and that have room
}

-- A message of the lane may come in over a slot it still has in the group: only a claim looks at that.
local function has_leftover(lane, group, held)
  if held > MAX_HOLDERS then return true end
  for _, mid in ipairs(call('HKEYS', k.slots(group))) do
    local place = tenant_of(mid) == lane.tenant and try('ZSCORE', k.lane(lane.name), mid)
    if place and not failed(place) then return true end
  end
  return false
end

-- Would the lane be kept out at this group? Slots and tokens that others were promised are not free.
local function is_shut(lane, group)
  local limit, held = limit_of(group), held_in(group)
  if not limit and not rates.of(group) or not held or dirty_state(group) then return false end
  local promised = call('HLEN', woken_key(lane.pool, group)) - batons_of(lane, group)
  if rates.tokens(group) <= promised then return true end
  return limit and held + promised >= limit and not has_leftover(lane, group, held)
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
  tag = tag or policy.enters(scope, last_tag(scope, lane.tenant), lane_tag)
  local before_all, least = guarantees.first(scope)
  if not guarantees.is_below(scope, lane.tenant) then
    if before_all then return nil end
    least = select(2, first(scope))
  end
  local promised = call('HLEN', woken_key(lane.pool, group))
  if beside.to_wake[group] > promised and tag <= (least or math.huge) then return tag end
end

-- The other groups at which a slot is promised to the lane together with the one it is woken at.
function beside.turns(lane, group, lane_tag)
  local turns = {}
  for _, other in ipairs(lane.groups) do
    if other ~= group and beside.to_wake[other] then turns[other] = turn_at(lane, other, lane_tag) end
  end
  return turns
end

function beside.promise(lane, group, tag, charged)
  local scope = group_scope(lane.pool, group)
  call('SADD', k.waiters(group), lane.pool) -- who takes or hands back the baton forgets the group
  add_baton(lane, group, tag, charged)
  if policy.by_seq then return end
  set_clock(scope, clock(scope))
  local in_ring = call('ZSCORE', k.ring(scope), lane.tenant)
  call('ZADD', in_ring and k.ring(scope) or k.tags(scope), tag + charged, lane.tenant)
end

-- The other group to whose list the lane moves on; nil: it may be woken.
local function next_gate(lane, group, turns)
  local pause = pauses.stopping(lane)
  if pause then return pause end
  for _, other in ipairs(lane.groups) do
    local contended = beside.to_wake[other] and call('EXISTS', k.ring(group_scope(lane.pool, other))) == 1
    if other ~= group and not turns[other] and (contended or is_shut(lane, other)) then return other end
  end
end

-- A lane that is woken at one group and would be kept out at another moves on to the list there, as it does when
-- this script has yet to give away what others wait for there and it is not the lane's turn. Through its pool's ring
-- it would come to that list by the next claim, when the room has gone to who stood there: its tenant would lose a
-- turn each time one message of its own held both slots. And each lane of a tenant at its own limit that a wider
-- group wakes would cost a claim.
function beside.moved_on(lane, group, turns, lane_tag, tenant_tag)
  if most_moves == 0 then return false end
  local other = next_gate(lane, group, turns)
  if not other then return false end
  most_moves = most_moves - 1
  stand_at(lane, other, lane_tag)
  call('ZREM', waiting_key(lane.pool, group, lane.tenant), lane.name)
  wait_on(lane, group, tenant_tag)
  return true
end
