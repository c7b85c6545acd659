-- Who comes to a group that is full of promises alone competes with those they were made to. All of them were parked
-- there when the slots came free; whoever was not (it takes its turns in the pool, and no claim has come to it) would
-- get none of them. It takes over a promise of a turn that is later than its own, the latest one that it meets.
-- SHARES rival_of take_over
local rivals = {} -- scope -> who holds batons there, as this script knows them

-- The lane's turn at the group: where its tenant stands, or would come in.
local function turn_at(scope, lane)
  local standing = tag_in(call('ZSCORE', k.ring(scope), lane.tenant))
  return standing or policy.enters(scope, last_tag(scope, lane.tenant))
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

-- Of many promises some are looked at, by chance: a walk over all would hold the server up at each claim that comes to
-- a wide group. Where few of them are later than the lane's own turn there is little to gain.
local MOST_RIVALS = 16
local function some_of(woken)
  if call('HLEN', woken) <= MOST_RIVALS then return call('HKEYS', woken) end
  return call('HRANDFIELD', woken, MOST_RIVALS)
end

local function look_again(pool, group, scope)
  local found, met, woken = {}, {}, woken_key(pool, group)
  for _, field in ipairs(some_of(woken)) do
    local name = string.match(field, '^[^\30]*')
    local lane = not met[name] and own_lane(name, pool, tenant_of(name))
    met[name] = true
    if lane then found[#found + 1] = { lane = lane, turn = last_turn(lane, group) } end
  end
  rivals[scope] = found
  return found
end

-- Is this one's promise for `lane` to take? What a tenant lacks of its guarantee only another such tenant takes, and it
-- takes a promise of whoever lacks nothing, whoever's turn is earlier.
local function gives_way(rival, lane, scope, own, favoured)
  if not rival.turn or rival.lane.tenant == lane.tenant then return false end
  if favoured ~= guarantees.covers(scope, rival.lane.tenant) then return favoured end
  return rival.turn > own
end

local function rivals_in(pool, group, scope) return rivals[scope] or look_again(pool, group, scope) end

-- Of another tenant, with the latest turn that is still promised, if that is later than `own`; else nil.
local function latest_of(lane, group, known, own, favoured)
  local latest
  local scope = group_scope(lane.pool, group)
  for _, rival in ipairs(known) do
    local gives = gives_way(rival, lane, scope, own, favoured)
    if gives and not (latest and latest.turn >= rival.turn) then latest = rival end
  end
  if not latest then return nil end
  local turn = latest.turn
  latest.turn = last_turn(latest.lane, group)
  if latest.turn == turn then return latest end
  return latest_of(lane, group, known, own, favoured) -- it has come for its slots meanwhile
end

local function rival_of(lane, group)
  if policy.by_seq then return nil end
  local scope = group_scope(lane.pool, group)
  local own = turn_at(scope, lane)
  local favoured = guarantees.is_below(scope, lane.tenant)
  if not favoured and own >= largest_tag(scope) then return nil end
  local known = rivals_in(lane.pool, group, scope)
  local rival = latest_of(lane, group, known, own, favoured)
  if rival or not known.changed then return rival end
  -- others may be left that were not looked at
  return latest_of(lane, group, look_again(lane.pool, group, scope), own, favoured)
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
  rival.turn, rivals[scope].changed = last_turn(lane, group), true
  local tag = tag_in(call('ZSCORE', k.ring(scope), lane.tenant)) or last_tag(scope, lane.tenant) or clock(scope)
  enter(scope, lane.tenant, tag - given_up)
  local lane_tag = tag_in(call('ZSCORE', k.ring(lane.scope), lane.name)) or clock(lane.scope)
  local tenant_tag = tag_in(call('ZSCORE', k.ring(lane.pool_scope), lane.tenant))
  if count == 1 then return park(lane, group, lane_tag, tenant_tag) end
  call('ZADD', waiting_key(lane.pool, group, lane.tenant), 'NX',
    lane_tag + weights.cost(lane.tenant, charge - given_up), lane.name)
  return {}
end

-- The lane takes over a promise: its tenant is charged at the group as if it had been woken there. Virtual time goes on
-- to its turn, unless other lanes of it have promises of earlier turns.
local function take_over(lane, group, charged, rival)
  local scope = group_scope(lane.pool, group)
  local handed_back = take_from(rival, group, scope)
  local tag, in_ring = turn_at(scope, lane), call('ZSCORE', k.ring(scope), lane.tenant)
  if tag > clock(scope) and not has_promises(lane, group) then
    set_clock(scope, guarantees.time(scope, lane.tenant, tag))
  end
  call('ZADD', in_ring and k.ring(scope) or k.tags(scope), tag + charged, lane.tenant)
  return handed_back
end
