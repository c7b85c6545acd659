-- The baton: a woken lane was promised a slot, which is not free for others. It takes it, or hands the baton on.
-- A lane holds a baton for each of its messages that a slot is promised to. Its field in `woken` says how many, what
-- they charged, the tag of the first and its number; each after it has a field of its own beside it with its number,
-- what it charged and its tag, so that HLEN counts batons.
-- SHARES further_baton batons_of add_baton further_of give_up refund wait_for_more use_baton hand_back park
local function further_baton(lane, number) return lane.name .. '\30' .. number end

-- A count that is larger than most are is compared with the batons there are: by one that was damaged, whoever drops
-- the lane's batons would go on for ever.
local MANY_BATONS = 1000

-- How many the lane holds, what they charged, the tag of the first one (nil: unknown) and its number.
local function batons_of(lane, group)
  local held = call('HGET', woken_key(lane.pool, group), lane.name)
  if not held then return 0, 0, nil, 1 end
  local count, charge, since, number = string.match(held, '^(%d+)\31([^\31]+)\31?([^\31]*)\31?(%d*)$')
  count = math.max(tonumber(count) or 1, 1)
  if count > MANY_BATONS then count = math.min(count, call('HLEN', woken_key(lane.pool, group))) end
  return count, tag_in(charge) or 0, tag_in(since), tag_in(number) or 1
end

local function float(number) return string.format('%.17g', number) end

-- The lane's field as text.
local function counted(count, charge, since, number)
  return table.concat({ count, float(charge), float(since), int(number) }, US)
end

-- One more slot is promised to the lane, at its tenant's tag, for a message that charges so much.
local function add_baton(lane, group, tag, charged)
  local count, charge, since, number = batons_of(lane, group)
  local woken, text = woken_key(lane.pool, group), counted(count + 1, charge + charged, since or tag, number)
  -- in one command: cut in between, there would be fewer batons than counted
  if count > 0 then
    call('HSET', woken, lane.name, text, further_baton(lane, number + count), float(charged) .. US .. float(tag))
  else
    call('HSET', woken, lane.name, text)
  end
  guarantees.promise(group_scope(lane.pool, group), lane.tenant, 1)
end

-- What a further baton charged and its tag; nil where that is damaged.
local function further_of(lane, group, number)
  local text = call('HGET', woken_key(lane.pool, group), further_baton(lane, number)) or ''
  local cost, tag = string.match(text, '^([^\31]+)\31([^\31]+)$')
  return tag_in(cost), tag_in(tag)
end

-- The slot that was promised last is not for this lane any more. Returns what that promise had charged.
local function give_up(lane, group)
  local woken, count, charge, since, number = woken_key(lane.pool, group), batons_of(lane, group)
  guarantees.promise(group_scope(lane.pool, group), lane.tenant, -1)
  if count <= 1 then
    call('HDEL', woken, lane.name)
    return charge
  end
  local last = number + count - 1
  local one = further_of(lane, group, last) or charge / count
  call('HDEL', woken, further_baton(lane, last))
  call('HSET', woken, lane.name, counted(count - 1, charge - one, since or 0, number))
  return one
end

local function drop_batons(lane, group)
  local woken, count, _, _, number = woken_key(lane.pool, group), batons_of(lane, group)
  local batons = { lane.name }
  for further = 1, count - 1 do batons[#batons + 1] = further_baton(lane, number + further) end
  many('HDEL', woken, batons)
  guarantees.promise(group_scope(lane.pool, group), lane.tenant, -count)
  leave_list(lane, group)
end

-- A message has come to a lane that was woken for all it had: it waits for a further slot with those who wait at the
-- group. Met by a claim only, its tenant would be passed over for each slot that comes free until then, time and again
-- if its messages come one by one.
local function wait_for_more(lane)
  local function stand_again(group, count, charge)
    local waiting, room = waiting_key(lane.pool, group, lane.tenant), rates.room(group)
    local is_full = room and room < math.huge and call('HLEN', woken_key(lane.pool, group)) >= room
    if not is_full or call('ZSCORE', waiting, lane.name) then return end
    local _, seq = standing(lane, count)
    local tag = seq and tonumber(call('ZSCORE', k.ring(lane.scope), lane.name))
    if not tag then return end
    local lane_tag = policy.served(lane.scope, lane.name, tag, weights.cost(lane.tenant, charge), seq)
    join(lane, group, lane_tag)
    call('ZADD', waiting, lane_tag, lane.name)
  end
  for _, group in ipairs(lane.groups) do
    local count, charge = batons_of(lane, group)
    if count > 0 then stand_again(group, count, charge) end
  end
end

-- Gives back what a wake-up charged, but never leads back behind virtual time: who was promised many slots and took
-- none would have a credit from the time in which it could take none.
local function refund(scope, tenant, charge)
  for _, key in ipairs({ k.ring(scope), k.tags(scope) }) do
    local tag = tag_in(call('ZSCORE', key, tenant))
    if tag then
      call('ZADD', key, math.max(tag - charge, math.min(tag, clock(scope))), tenant)
      return guarantees.again(scope, tenant)
    end
  end
end

-- The lane took a slot that was promised to it, for a message that charges so much. True if it had been. After the last
-- one it is `listed` still: it leaves the list unless it waits at the same group again. Virtual time goes on when a
-- promise is kept: whoever comes between the two is not behind those who were promised many.
local function use_baton(lane, group, charged)
  local woken, count, charge, since, number = woken_key(lane.pool, group), batons_of(lane, group)
  if count == 0 then return false end
  local scope = group_scope(lane.pool, group)
  if since and since > clock(scope) and not policy.by_seq then
    set_clock(scope, guarantees.time(scope, lane.tenant, since))
  end
  guarantees.promise(scope, lane.tenant, -1)
  if count > 1 then
    local _, following = further_of(lane, group, number + 1)
    call('HDEL', woken, further_baton(lane, number + 1))
    following = following or (since or 0) + charged
    call('HSET', woken, lane.name, counted(count - 1, charge - charged, following, number + 1))
    return true
  end
  call('HDEL', woken, lane.name)
  -- another message than the one it was promised to, which cost more or less
  if charge ~= charged and not policy.by_seq then refund(scope, lane.tenant, charge - charged) end
  lane.listed = lane.listed or {}
  lane.listed[group] = true
  return true
end

-- The lane gives back the batons it holds and what they charged; returns how many of which group, to be woken again.
local function hand_back(lane)
  local batons = {}
  for _, group in ipairs(lane.groups) do
    local count, charge = batons_of(lane, group)
    if count > 0 then
      local scope = group_scope(lane.pool, group)
      drop_batons(lane, group)
      if not policy.by_seq then refund(scope, lane.tenant, charge) end
      guarantees.again(scope, lane.tenant)
      batons[group] = count
    end
  end
  return batons
end

-- Parks a lane at a full group. The new place is written before the old one is left, from the outside in: what a
-- cut leaves is met by the next wake-up of the group, which finds nothing there and takes it out.
local function park(lane, group, lane_tag, tenant_tag)
  local batons = hand_back(lane)
  stand_at(lane, group, lane_tag)
  call('ZREM', k.ring(lane.scope), lane.name)
  tenant_changed(lane, tenant_tag)
  return batons
end
