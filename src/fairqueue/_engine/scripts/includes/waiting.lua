-- Waiting at a full group. A blocked lane leaves the ring and is parked at the group: it stands on its tenant's list
-- there, and its tenant takes turns with the others that wait. Nobody polls.
-- SHARES group_idle wait_on unblock unpark leave_list join stand_at
local function group_idle(pool, group)
  local scope = group_scope(pool, group)
  if call('EXISTS', k.ring(scope), woken_key(pool, group)) > 0 then return end
  rates.watch(group)
  stop_clock(scope)
  call('SREM', k.waiters(group), pool)
  -- nobody holds a slot either: whoever was the last here has been cancelled or paused, not served
  if not dirty_state(group) and call('EXISTS', k.slots(group), k.waiters(group)) == 0 then
    call('SREM', k.groups, group)
  end
end

-- The tenant waits on at the group at `tag` (nil: where it is) while lanes of it are on the list, or leaves.
local function wait_on(lane, group, tag)
  local scope = group_scope(lane.pool, group)
  if call('EXISTS', waiting_key(lane.pool, group, lane.tenant)) == 0 then
    rates.watch(group)
    leave(scope, lane.tenant, tag)
  elseif tag then
    call('ZADD', k.ring(scope), tag, lane.tenant)
  end
end

local function unblock(lane)
  call('HDEL', parked_key(lane), lane.name)
  if call('EXISTS', parked_key(lane)) == 0 then call('SREM', k.blocked(lane.pool), lane.tenant) end
end

-- Takes a lane off the list of those who wait at the group; its tenant waits on at `tag`, or leaves with it.
local function unpark(lane, group, tag)
  call('ZREM', waiting_key(lane.pool, group, lane.tenant), lane.name)
  unblock(lane)
  wait_on(lane, group, tag)
end

-- Off the list of the group, where a woken lane stands for its further messages.
local function leave_list(lane, group)
  if call('ZREM', waiting_key(lane.pool, group, lane.tenant), lane.name) == 0 then return end
  wait_on(lane, group, tonumber(call('ZSCORE', k.ring(group_scope(lane.pool, group)), lane.tenant)))
end

-- The lane's tenant takes turns with those who wait at the group.
local function join(lane, group, lane_tag)
  local scope = group_scope(lane.pool, group)
  rates.expect(group)
  call('SADD', k.groups, group)
  call('SADD', k.waiters(group), lane.pool)
  if call('ZSCORE', k.ring(scope), lane.tenant) then return guarantees.again(scope, lane.tenant) end
  local tag = policy.enters(scope, last_tag(scope, lane.tenant), lane_tag)
  enter(scope, lane.tenant, policy.by_seq and tag or behind_equals(scope, tag))
end

-- Puts a lane on the list of those who wait at a group.
local function stand_at(lane, group, lane_tag)
  join(lane, group, lane_tag)
  call('SADD', k.blocked(lane.pool), lane.tenant)
  call('HSET', parked_key(lane), lane.name, group)
  call('ZADD', waiting_key(lane.pool, group, lane.tenant), lane_tag, lane.name)
end
