-- Parking: who is kept out leaves the ring for the list of the group that keeps it out.
-- SHARES parking batons
local parking = {}
local batons = {} -- groups to wake at when this claim is done

-- Only lanes of this tenant wait at the group, which is a limit of its own.
local function is_alone(lane, group)
  local scope = group_scope(lane.pool, group)
  return call('ZCARD', k.ring(scope)) == 1 and call('ZSCORE', k.ring(scope), lane.tenant)
end

-- A slot of a tenant's own limit that the lane cannot take is for another lane of it, at once: at the end of this
-- script its turns would have gone to others. So is one of a shared group where the tenant lacks slots that it is
-- guaranteed. Others get what is handed back there at the end, together with what comes free elsewhere.
local function park_at(lane, group, lane_tag, tenant_tag)
  bounds.parks = bounds.parks + 1
  if limit_of_group(group) == 'tenant' or pauses.named_by(group) then service.keeps_out(lane) end
  if lane.listed then lane.listed[group] = nil end
  for baton, count in pairs(park(lane, group, lane_tag, tenant_tag)) do
    if is_alone(lane, baton) or guarantees.is_below(group_scope(lane.pool, baton), lane.tenant) then
      wake({ [baton] = true }, gate_of(baton).taken)
    else
      keep_for_waiters(baton, count)
    end
    batons[baton] = true
  end
end

-- A message ready in a lane that may come in over its own leftover slot, as { mid, header }; else the group at which
-- such a message has to wait.
local function leftover_of(lane, group)
  local mid, elsewhere = own_leftover(lane, group, ahead.taken)
  local h = mid and unpack_header(call('HGET', k.head, mid))
  local comes_in = h and h.state == 'r' and h.lane == lane.name and not expiring.passed(h)
  if comes_in then return { mid = mid, header = h, over = true } end
  return nil, elsewhere
end

-- The group at which the lane has to wait, and whether that must be reconciled first; nil: it may go on. Nothing of a
-- lane that is paused starts, not even over a leftover of its own.
local function stopped_by(lane)
  lane.readmitted = nil
  local pause = pauses.stopping(lane)
  if pause then return pause end
  local group, must_reconcile = blocking_group(lane)
  if not group then return nil end
  local found, elsewhere = leftover_of(lane, group)
  lane.readmitted = found
  if found then return nil end
  if elsewhere and not must_reconcile then return elsewhere, gate_of(elsewhere).dirty end
  return group, must_reconcile
end

-- Parks the lane unless it may go on; true if it was parked or passed over.
function parking.kept_out(lane, lane_tag, tenant_tag)
  local group, must_reconcile = stopped_by(lane)
  if not group then return false end
  if must_reconcile then
    dirty[group] = true
    bounds.barred = bounds.barred + 1
    passing.over_lane(lane)
    return true
  end
  park_at(lane, group, lane_tag, tenant_tag)
  if policy.by_seq then
    local _, least = passing.first_in(lane.scope)
    if least then call('ZADD', k.ring(lane.pool_scope), 'XX', least, lane.tenant) end
  end
  return true
end
