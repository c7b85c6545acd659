-- Choosing. Tenants take turns in the pool, lanes take turns in their tenant; only tags are written meanwhile.
-- @include claim_bounds
-- @include claim_passing
-- @include claim_ahead
-- @include claim_park
-- SHARES picks touched pick_from
local picks, touched = {}, {} -- chosen; lanes to look at at the end of this script

-- The slot that was promised to the lane, or one that it takes over; true if it was its own baton.
local function answer_promises(gate, lane, group, charged)
  if not gate.woken then return false end
  if use_baton(lane, group, charged) then return true end
  local rival = not has_room(gate, lane, group) and rival_of(lane, group)
  if not rival then return false end
  bounds.parks = bounds.parks + 1 -- whoever lost a promise is parked
  for baton, count in pairs(take_over(lane, group, charged, rival)) do
    keep_for_waiters(baton, count)
    batons[baton] = true
  end
  return false
end

local function choose(lane, found, cost)
  local promised = guarantees.is_below(lane.pool_scope, lane.tenant)
  picks[#picks + 1] = { mid = found.mid, header = found.header, lane = lane, charged = cost, promised = promised }
  ahead.taken[found.mid] = true
  if lane.next and lane.next.mid == found.mid then lane.next = nil end
  local charged = weights.charge(lane.tenant, cost)
  for _, group in ipairs(lane.groups) do
    local gate = gate_of(group)
    -- over its own leftover it takes no more than it holds: the next one is judged by what is really held
    local over = found.over and call('HEXISTS', k.slots(group), found.mid) == 1
    if answer_promises(gate, lane, group, charged) then batons[group] = true end
    if not over then gate.held, gate.taken = gate.held + 1, gate.taken + 1 end
    if rates.spend(group) then batons[group] = true end -- who waits for the next token is told when that is
  end
end

-- Who was charged too much is behind virtual time until it has caught up. That never goes back with it, or whoever
-- comes meanwhile would be given the same. What is further behind than any charge was damaged: time goes by the turn.
local FARTHEST_BEHIND = 2 ^ 24
local function go_on(scope, tag)
  local time = clock(scope)
  local behind = not policy.by_seq and tag < time and tag > time - FARTHEST_BEHIND
  set_clock(scope, behind and time or tag)
end

local function serve(lane, found, lane_tag, tenant_tag)
  local cost = charges.of(lane.tenant, tonumber(found.header.cost))
  go_on(lane.scope, lane_tag)
  go_on(lane.pool_scope, guarantees.time(lane.pool_scope, lane.tenant, tenant_tag))
  choose(lane, found, cost)
  local following = policy.by_seq and ahead.peek(lane) or not policy.by_seq and ahead.has_more(lane)
  local following_seq = policy.by_seq and following and following.header.seq or lane_tag
  lane_tag = policy.served(lane.scope, lane.name, lane_tag, cost, following_seq)
  call('ZADD', k.ring(lane.scope), lane_tag, lane.name)
  local function least()
    local _, tag = passing.first_in(lane.scope)
    return tag or tenant_tag
  end
  if not following then
    passing.over_lane(lane)
    touched[lane] = true
  end
  tenant_tag = policy.served(lane.pool_scope, lane.tenant, tenant_tag, weights.charge(lane.tenant, cost), least)
  call('ZADD', k.ring(lane.pool_scope), tenant_tag, lane.tenant)
  picks[#picks].turn = tenant_tag
  return following, lane_tag, tenant_tag
end

-- Whoever is not to be served yet stands where the policy puts it, the lane in its tenant and the tenant in its pool.
local function has_to_wait(lane, found, lane_tag, tenant_tag)
  local cost, seq = charges.of(lane.tenant, tonumber(found.header.cost)), found.header.seq
  local function least()
    local _, of_first = passing.first_in(lane.scope)
    return of_first or seq
  end
  local lane_to = policy.waits(lane.scope, lane.name, lane_tag, cost, seq)
  if lane_to then call('ZADD', k.ring(lane.scope), lane_to, lane.name) end
  local charge = weights.charge(lane.tenant, cost)
  local tenant_to = policy.waits(lane.pool_scope, lane.tenant, tenant_tag, charge, least)
  if tenant_to then call('ZADD', k.ring(lane.pool_scope), tenant_to, lane.tenant) end
  if not lane_to and not tenant_to then return false end
  bounds.stale = bounds.stale + 1 -- many at once after a change of the scheduler
  return true
end

local function visit(lane, lane_tag, tenant_tag)
  local found = ahead.peek(lane)
  if not found then
    touched[lane] = true
    return passing.over_lane(lane)
  end
  if has_to_wait(lane, found, lane_tag, tenant_tag) or parking.kept_out(lane, lane_tag, tenant_tag) then return end
  found, lane.readmitted = lane.readmitted or found, nil
  local following
  following, lane_tag, tenant_tag = serve(lane, found, lane_tag, tenant_tag)
  -- blocking is paid for when it happens: who is full now leaves the ring now, and no later claim meets it
  if following then parking.kept_out(lane, lane_tag, tenant_tag) end
  for group in pairs(lane.listed or {}) do leave_list(lane, group) end
  lane.listed = nil
end

-- A tenant that takes turns without a lane: left by a script that was cut, or its ring was evicted or deleted.
local function leave_without_lane(any, tenant_tag)
  if call('EXISTS', parked_key(any)) == 0 and (tonumber(call('HGET', k.tenant(any.tenant), 'r')) or 0) > 0 then
    to_be_rebuilt() -- reconcile writes the rings again, from the messages
  end
  tenant_changed(any, tenant_tag)
end

local function pick_from(pool, wanted)
  if pauses.of_pool(pool) then return end
  local scope = 'p' .. US .. pool
  while #picks < wanted and not bounds.must_stop() do
    local tenant, tenant_tag = passing.first_tenant(scope)
    if not tenant then return end
    local own = 't' .. US .. pool .. US .. tenant
    local name, lane_tag = passing.first_in(own)
    local lane = name and own_lane(name, pool, tenant)
    if lane then
      visit(lane, lane_tag, tenant_tag)
    elseif name then
      call('ZREM', k.ring(own), name) -- a stranger: its own rings would be looked at, and this one for ever
    else
      local any = lane_of(tenant .. US .. 'none' .. US .. pool)
      if call('EXISTS', k.ring(any.scope)) == 1 then
        passing.over(scope, tenant)
      else
        leave_without_lane(any, tenant_tag)
      end
    end
  end
end
