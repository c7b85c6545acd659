-- Whose turn comes first, as a claim finds it that comes now; nothing is written. Who would not be served by its turn
-- (it is paused, kept out by a limit, or all that it has expired) is left out, and who would be moved by the policy
-- first stands where it is moved to. Bounded: so many lanes are looked at, those behind them count as they stand.
-- SHARES ahead
local ahead = {}
local MOST_LANES, FEW = 40, 10
local looked_at = 0 -- lanes

-- The header of a message of this lane that may start; nil: it has none, or expired.
local function startable(lane, text)
  local h = unpack_header(text)
  return h and h.state == 'r' and h.lane == lane.name and not expiring.passed(h) and h or nil
end

-- The header of what a claim would take from the lane: one of its first few.
local function next_of(lane)
  local mids = try('ZRANGE', k.lane(lane.name), 0, FEW - 1)
  if failed(mids) then return nil end
  for _, text in ipairs(get_many(k.head, mids)) do
    local h = startable(lane, text)
    if h then return h end
  end
end

-- How many messages stand before this place that may start: of the first ones those that cannot are left out.
function ahead.in_lane(lane, place)
  local mids, count = call('ZRANGE', k.lane(lane.name), 0, math.min(place, MOST_LANES) - 1), place
  for _, text in ipairs(place > 0 and get_many(k.head, mids) or {}) do
    if not startable(lane, text) then count = count - 1 end
  end
  return count
end

-- May something of the lane start, as far as its groups and pauses go?
local function is_let_in(lane)
  if pauses.stopping(lane) then return false end
  for _, group in ipairs(lane.groups) do
    if not held_in(group) then return false end -- it has to be reconciled first
  end
  local group = blocking_group(lane)
  return not group or own_leftover(lane, group, {}) ~= nil
end

-- By which tag a lane is served, if it is, and what that costs.
local function turn_of_lane(lane, tag)
  local h = next_of(lane)
  if not h or not is_let_in(lane) then return nil end
  local cost = charges.of(lane.tenant, tonumber(h.cost))
  return policy.waits(lane.scope, lane.name, tag, cost, h.seq) or tag, cost
end

-- The first turn of those that the lanes of a tenant have, and what it costs; without a cost: nobody looked that far.
local function first_turn(pool, tenant)
  local scope, at, cost = 't' .. US .. pool .. US .. tenant, nil, nil
  local standing = call('ZRANGE', k.ring(scope), 0, MOST_LANES, 'WITHSCORES')
  for i = 1, #standing, 2 do
    local tag = tag_in(standing[i + 1]) or clock(scope)
    if at and at <= tag then break end
    if looked_at >= MOST_LANES then return at or tag end
    looked_at = looked_at + 1
    local lane, turn, charge = own_lane(standing[i], pool, tenant), nil, nil
    if lane then turn, charge = turn_of_lane(lane, tag) end
    if turn and not (at and at <= turn) then at, cost = turn, charge end
  end
  return at, cost
end

-- By which tag somebody is served in a scope, nil: it would not be.
local turns = {}

function turns.p(scope, tenant, tag)
  if not is_name(tenant) then return nil end
  local at, cost = first_turn(string.sub(scope, 3), tenant)
  if not at or not cost then return at and tag end
  return policy.waits(scope, tenant, tag, weights.charge(tenant, cost), function() return at end) or tag
end

function turns.t(scope, name, tag)
  looked_at = looked_at + 1
  if looked_at > MOST_LANES then return tag end
  local lane = own_lane(name, string.match(scope, '^t\31(.-)\31(.*)$'))
  return lane and (turn_of_lane(lane, tag))
end

function turns.g(_, _, tag) return tag end

-- Can somebody go first there? The lanes of a tenant have no guarantees.
function ahead.has_below(scope) return guarantees.any and string.sub(scope, 1, 1) ~= 't' end

-- Where somebody of a ring stands; `comes`: it is served there.
function ahead.turn_in(scope, member)
  local score = call('ZSCORE', k.ring(scope), member)
  local tag = score and (tag_in(score) or clock(scope))
  if not tag then return nil end
  local at = turns[string.sub(scope, 1, 1)](scope, member, tag)
  local listed = ahead.has_below(scope) and tonumber(call('ZSCORE', k.below(scope), member))
  return {
    member = member, tag = tag, at = at or tag, comes = at ~= nil, listed = listed,
    favoured = listed and guarantees.is_below(scope, member) or false,
  }
end
