-- Waking one lane: the next one of the tenant that was served least at a group.
-- SHARES most_wakes wakes wake_one

-- How many one script may wake: what is short of that is woken by calling again. A script that is not called again may
-- wake one more for every slot it freed and every baton it hands on.
local most_wakes = 200
local wakes = 0

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
  local tenant, tag = guarantees.next(scope)
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
  cost = cost and charges.of(tenant, cost)
  if not cost then
    unpark(lane, group, tag)
    tenant_changed(lane)
    return 0
  end
  if unlimited then return let_go(lane, group, tonumber(top[2]), tag, seq) end
  local turns = beside.turns(lane, group, tonumber(top[2]))
  if count == 0 and beside.moved_on(lane, group, turns, tonumber(top[2]), tag) then return 0 end
  set_clock(scope, clock(scope)) -- it goes on when the promise is kept; unwritten, it would be taken from who is next
  -- Before anything is promised to it: cut in between, a lane that takes no turns would keep slots from all others.
  if count == 0 then enter_lane(lane, tonumber(top[2]), seq, true) end
  local charged = weights.charge(tenant, cost)
  for other, turn in pairs(turns) do beside.promise(lane, other, turn, charged) end
  bells[pool] = true
  add_baton(lane, group, tag, charged)
  -- It stays on the list for its further messages, or a tenant with many lanes would have theirs let in before.
  local _, following = standing(lane, count + 1)
  if following then
    call('ZADD', waiting, policy.served(lane.scope, lane.name, tonumber(top[2]), cost, following), lane.name)
  else
    call('ZREM', waiting, lane.name)
  end
  local function least()
    local _, of_first = unpack(call('ZRANGE', waiting, 0, 0, 'WITHSCORES'))
    return tonumber(of_first) or tag
  end
  unblock(lane)
  wait_on(lane, group, policy.served(scope, tenant, tag, charged, least))
  wakes = wakes + 1
  return 1
end
