-- Which lanes and tenants are claimable: a lane with ready messages is in its tenant's ring or parked at a full
-- group; a tenant with claimable lanes is in its pool's ring.
-- SHARES RETRY_LANE_MS enter_lane lane_ready tenant_changed note_stopped standing next_in

local RETRY_LANE_MS = 10000 -- until a message is tried again whose lane could not be written

-- Rings are entered from the outside in, before the lane is written: what a cut leaves is then met, and taken out,
-- by a claim that finds nothing there. Those who are woken come in the order in which they are (`in_turn`), also at one
-- virtual time: that is their order at the group they waited for.
local function enter_tenant(lane, seq, in_turn)
  local tag = tonumber(call('ZSCORE', k.ring(lane.pool_scope), lane.tenant))
  if tag then
    if policy.by_seq and seq < tag then
      call('ZADD', k.ring(lane.pool_scope), seq, lane.tenant)
      guarantees.follow(lane.pool_scope, lane.tenant, seq)
    end
    return
  end
  local function least()
    local _, of_first = first(lane.scope)
    return math.min(of_first or seq, seq)
  end
  tag = policy.enters(lane.pool_scope, last_tag(lane.pool_scope, lane.tenant), least)
  if in_turn and not policy.by_seq then tag = behind_equals(lane.pool_scope, tag) end
  enter(lane.pool_scope, lane.tenant, tag)
  call('SADD', k.pools, lane.pool)
end

-- Makes a lane claimable (again) at the tag it left with, or at its tenant's virtual time.
local function enter_lane(lane, tag, seq, in_turn)
  bells[lane.pool] = true
  enter_tenant(lane, seq, in_turn)
  enter(lane.scope, lane.name, policy.enters(lane.scope, tag, seq))
end

-- A message is about to be ready in this lane: the lane takes turns, unless it is parked.
local function lane_ready(lane, seq)
  local tag = call('ZSCORE', k.ring(lane.scope), lane.name)
  if not tag then
    if call('HEXISTS', parked_key(lane), lane.name) == 1 then return end
    enter_lane(lane, last_tag(lane.scope, lane.name), seq)
    return
  end
  if policy.by_seq and seq < tonumber(tag) then call('ZADD', k.ring(lane.scope), seq, lane.name) end
  enter_tenant(lane, seq)
  bells[lane.pool] = true
end

-- Called when a tenant lost a claimable or a parked lane: forgets turns that nobody waits for any more.
local function tenant_changed(lane, tag)
  if call('EXISTS', k.ring(lane.scope)) == 1 then return end
  policy.leaves(lane.pool_scope, lane.tenant, tag)
  if call('EXISTS', parked_key(lane)) == 1 then return end
  stop_clock(lane.scope)
  call('SREM', k.blocked(lane.pool), lane.tenant)
  if call('EXISTS', k.ring(lane.pool_scope), k.blocked(lane.pool)) == 0 then
    stop_clock(lane.pool_scope)
    call('SREM', k.pools, lane.pool)
  end
end

-- A lane that cannot be read (its key holds another type) takes no turns until reconcile finds it readable.
local function note_stopped(lane) call('HSET', k.stopped, lane.name, int(now)) end

-- Who stands at this place of the lane (0 is next), and its place in the order of acceptance; nil if nobody does.
local function standing(lane, place)
  local found = try('ZRANGE', k.lane(lane.name), place, place, 'WITHSCORES')
  if failed(found) then
    note_stopped(lane)
    return nil
  end
  if found[1] then return found[1], seq_of_score(found[2]) end
end

-- What the lane's next message, or the one at that place, will cost, and its place in the order of acceptance; nil if
-- nothing is ready.
local function next_in(lane, place)
  local mid, seq = standing(lane, place or 0)
  if not mid then return nil end
  local header = unpack_header(call('HGET', k.head, mid))
  return header and tonumber(header.cost) or 1, seq
end
