-- A lane without messages, or one that cannot be read, leaves all places where it takes turns or waits.
-- SHARES lane_leaves lane_emptied

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
