-- Who comes to a group that is full of promises alone competes with those they were made to. All of them were parked
-- there when the slots came free; whoever was not (it takes its turns in the pool, and no claim has come to it) would
-- get none of them. It takes over a promise of a turn that is later than its own, the latest one.
-- SHARES rival_of take_over
local rivals = {} -- scope -> those who hold batons there, as read once a script

-- The lane's turn at the group: where its tenant stands, or would come in.
local function turn_at(scope, lane)
  local standing = tag_in(call('ZSCORE', k.ring(scope), lane.tenant))
  return standing or policy.tenant_enters(clock(scope), last_tag(scope, lane.tenant))
end

local function largest_tag(scope)
  local largest = 0
  for _, key in ipairs({ k.ring(scope), k.tags(scope) }) do
    local last = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    largest = math.max(largest, last[1] and tag_in(last[2]) or 0)
  end
  return largest
end

-- The turn that was promised to the lane last; nil if none is left.
local function last_turn(lane, group)
  local count, _, since, number = batons_of(lane, group)
  if count == 0 then return nil end
  if count == 1 then return since or 0 end
  local _, tag = further_of(lane, group, number + count - 1)
  return tag or since or 0
end

local function rivals_in(pool, group, scope)
  if rivals[scope] then return rivals[scope] end
  local found = {}
  for _, name in ipairs(call('HKEYS', woken_key(pool, group))) do
    local lane = not string.find(name, '\30', 1, true) and own_lane(name, pool, tenant_of(name))
    if lane then found[#found + 1] = { lane = lane, turn = last_turn(lane, group) } end
  end
  rivals[scope] = found
  return found
end

-- Of another tenant, with the latest turn that is still promised, if that is later than the lane's own; else nil.
local function rival_of(lane, group)
  if policy.by_seq then return nil end
  local scope = group_scope(lane.pool, group)
  local own = turn_at(scope, lane)
  if own >= largest_tag(scope) then return nil end
  local latest
  for _, rival in ipairs(rivals_in(lane.pool, group, scope)) do
    local later = rival.turn and rival.turn > own and rival.lane.tenant ~= lane.tenant
    if later and not (latest and latest.turn >= rival.turn) then
      rival.turn = last_turn(rival.lane, group) -- it may have come for its slots meanwhile
      if rival.turn then latest = rival end
    end
  end
  return latest
end

local function has_promises(lane, group)
  for _, rival in ipairs(rivals_in(lane.pool, group, group_scope(lane.pool, group))) do
    if rival.lane.tenant == lane.tenant and batons_of(rival.lane, group) > 0 then return true end
  end
  return false
end

-- A promise of the rival's is taken from it: it waits at the group from where it stood before, also behind virtual
-- time, for it has waited since. Its lane waits there for that slot again; without another promise it is parked.
-- Returns the groups of the batons that it hands back with it.
local function take_from(rival, group, scope)
  local lane = rival.lane
  local count, charge = batons_of(lane, group)
  -- Off the list before its last baton goes: cut in between, it would wait there beside room that nobody was woken for.
  if count == 1 then leave_list(lane, group) end
  local given_up = give_up(lane, group)
  rival.turn = last_turn(lane, group)
  local tag = tag_in(call('ZSCORE', k.ring(scope), lane.tenant)) or last_tag(scope, lane.tenant) or clock(scope)
  enter(scope, lane.tenant, tag - given_up)
  local lane_tag = tag_in(call('ZSCORE', k.ring(lane.scope), lane.name)) or clock(lane.scope)
  local tenant_tag = tag_in(call('ZSCORE', k.ring(lane.pool_scope), lane.tenant))
  if count == 1 then return park(lane, group, lane_tag, tenant_tag) end
  call('ZADD', waiting_key(lane.pool, group, lane.tenant), 'NX', lane_tag + charge - given_up, lane.name)
  return {}
end

-- The lane takes over a promise: its tenant is charged at the group as if it had been woken there. Virtual time goes on
-- to its turn, unless other lanes of it have promises of earlier turns.
local function take_over(lane, group, cost, rival)
  local scope = group_scope(lane.pool, group)
  local handed_back = take_from(rival, group, scope)
  local tag, in_ring = turn_at(scope, lane), call('ZSCORE', k.ring(scope), lane.tenant)
  if tag > clock(scope) and not has_promises(lane, group) then set_clock(scope, tag) end
  call('ZADD', in_ring and k.ring(scope) or k.tags(scope), tag + cost, lane.tenant)
  return handed_back
end
