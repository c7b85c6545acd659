-- Waiting at a full group, and the baton. A blocked lane leaves the ring and is parked at the group; every
-- script that leaves a group with room wakes min(room, waiters), counting those already woken. A woken lane
-- that cannot take the slot hands the baton on in the same script. Nobody polls.
-- How many one script may wake: what is short of that is woken by calling again. A script that frees slots of many
-- groups and is not called again sets it to the most slots it can free.
local most_wakes = 200
local wakes = 0

local function group_idle(pool, group)
  local scope = group_scope(pool, group)
  if call('EXISTS', k.ring(scope), woken_key(pool, group)) > 0 then return end
  stop_clock(scope)
  call('SREM', k.waiters(group), pool)
end

-- A lane that cannot be read (its key holds another type) takes no turns until reconcile finds it readable.
local function note_stopped(lane) call('HSET', k.stopped, lane.name, int(now)) end

-- What the lane's next message will cost, and its place in the order of acceptance; nil if nothing is ready.
local function next_in(lane)
  local top = try('ZRANGE', k.lane(lane.name), 0, 0, 'WITHSCORES')
  if failed(top) then note_stopped(lane) end
  if failed(top) or not top[1] then return nil end
  local header = unpack_header(call('HGET', k.head, top[1]))
  return header and tonumber(header.cost) or 1, seq_of_score(top[2])
end

-- Takes a lane off the list of those who wait at the group; its tenant waits on at `tag`, or leaves with it.
local function unpark(lane, group, tag)
  local scope, waiting = group_scope(lane.pool, group), waiting_key(lane.pool, group, lane.tenant)
  call('ZREM', waiting, lane.name)
  call('HDEL', parked_key(lane), lane.name)
  if call('EXISTS', parked_key(lane)) == 0 then call('SREM', k.blocked(lane.pool), lane.tenant) end
  if call('EXISTS', waiting) == 0 then
    leave(scope, lane.tenant, tag)
  elseif tag then
    call('ZADD', k.ring(scope), tag, lane.tenant)
  end
end

-- Wakes the next lane of the least served tenant at one group in one pool. The group's own virtual time
-- decides: by the pool's clock, weights would come out equal at a group of limit 1. Returns nil when nobody
-- waits, else how many were woken (0: what waited there was empty or gone).
local function wake_one(pool, group)
  local scope = group_scope(pool, group)
  local tenant, tag = first(scope)
  if not tenant then return nil end
  local waiting = waiting_key(pool, group, tenant)
  local top = call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
  if not top[1] then
    leave(scope, tenant, tag)
    return 0
  end
  local lane = lane_of(top[1])
  local cost, seq = next_in(lane)
  if not cost then
    unpark(lane, group, tag)
    tenant_changed(lane)
    return 0
  end
  set_clock(scope, tag)
  enter_lane(lane, tonumber(top[2]), seq)
  call('HSET', woken_key(pool, group), lane.name, cost)
  local function least()
    local after = call('ZRANGE', waiting, 1, 1, 'WITHSCORES')
    return tonumber(after[2]) or tag
  end
  unpark(lane, group, policy.tenant_served(tag, cost, least))
  wakes = wakes + 1
  return 1
end

-- One lane a pool goes back to its ring although nothing is known to be free: it finds the group that cannot be
-- trusted and has it reconciled.
local function wake_prober(group, pools)
  for _, pool in ipairs(pools) do
    if call('EXISTS', woken_key(pool, group)) == 0 then wake_one(pool, group) end
  end
end

-- Wakes as many as the group has room for; a group under repair wakes the others when it opens.
local function wake(group)
  local pools = call('SMEMBERS', k.waiters(group))
  if #pools == 0 then return end
  local held, limit = held_in(group), limit_of(group)
  if not held then mark_dirty(group, 'dirty') end
  if dirty_state(group) then return wake_prober(group, pools) end
  for _, pool in ipairs(pools) do
    local room = (limit and limit - held or math.huge) - call('HLEN', woken_key(pool, group))
    while room > 0 and wakes < most_wakes do
      local woken = wake_one(pool, group)
      if not woken then break end
      room = room - woken
    end
    group_idle(pool, group)
  end
end

-- The lane gives back the batons it holds and what they charged; returns their groups, to be woken again.
local function hand_back(lane)
  local batons = {}
  for _, group in ipairs(lane.groups) do
    local woken = woken_key(lane.pool, group)
    local charge = call('HGET', woken, lane.name)
    if charge then
      local scope = group_scope(lane.pool, group)
      call('HDEL', woken, lane.name)
      local ring = call('ZSCORE', k.ring(scope), lane.tenant) and k.ring(scope) or k.tags(scope)
      if not policy.by_seq and call('ZSCORE', ring, lane.tenant) then
        call('ZINCRBY', ring, -tonumber(charge), lane.tenant)
      end
      batons[#batons + 1] = group
    end
  end
  return batons
end

-- Parks a lane at a full group. The new place is written before the old one is left, from the outside in: what a
-- cut leaves is met by the next wake-up of the group, which finds nothing there and takes it out.
local function park(lane, group, lane_tag, tenant_tag)
  local scope = group_scope(lane.pool, group)
  local batons = hand_back(lane)
  call('SADD', k.groups, group)
  call('SADD', k.waiters(group), lane.pool)
  if not call('ZSCORE', k.ring(scope), lane.tenant) then
    local function least() return lane_tag end
    enter(scope, lane.tenant, policy.tenant_enters(clock(scope), last_tag(scope, lane.tenant), least))
  end
  call('SADD', k.blocked(lane.pool), lane.tenant)
  call('HSET', parked_key(lane), lane.name, group)
  call('ZADD', waiting_key(lane.pool, group, lane.tenant), lane_tag, lane.name)
  call('ZREM', k.ring(lane.scope), lane.name)
  tenant_changed(lane, tenant_tag)
  return batons
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
  for _, group in ipairs(batons) do wake(group) end
end

local function lane_emptied(lane)
  if call('EXISTS', k.lane(lane.name)) == 0 then lane_leaves(lane) end
end
