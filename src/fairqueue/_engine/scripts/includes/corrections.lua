-- What a delivery was charged is put right when more is known: it never began, or it took so many seconds.
-- SHARES corrections
local corrections = {}

-- Who takes turns is moved. Who has left is, too, while its tag is ahead of virtual time: a credit for who is not there
-- would be one for later.
local function move(scope, member, by)
  local tag = tag_in(call('ZSCORE', k.ring(scope), member))
  if tag then
    call('ZADD', k.ring(scope), policy.served(scope, member, tag, by), member)
    return true
  end
  tag = last_tag(scope, member)
  if not tag then return false end
  if tag + by > clock(scope) then
    call('ZADD', k.tags(scope), tag + by, member)
  else
    call('ZREM', k.tags(scope), member)
  end
  return true
end

-- Left, and virtual time has passed its turn: what it owes counts from its turn, or from virtual time if that began
-- anew since. Only while others take turns there, or its tag would stay for good.
local function owe(lane, turn, by)
  local scope = lane.pool_scope
  local tag = math.min(turn or clock(scope), clock(scope)) + by
  if tag <= clock(scope) or call('EXISTS', k.ring(scope), k.blocked(lane.pool)) == 0 then return end
  call('ZADD', k.tags(scope), tag, lane.tenant)
end

local function move_lane(lane, by)
  local group = not move(lane.scope, lane.name, by) and call('HGET', parked_key(lane), lane.name)
  if not group then return end
  local waiting = waiting_key(lane.pool, group, lane.tenant)
  call('ZADD', waiting, 'XX', (tag_in(call('ZSCORE', waiting, lane.name)) or 0) + by, lane.name)
end

-- At a group a tenant is charged for what is promised to it there, so it may not have been for this one: what it gets
-- back leads to virtual time and no further.
local function move_waiter(lane, group, by)
  local scope = group_scope(lane.pool, group)
  if by < 0 then return refund(scope, lane.tenant, -by) end
  for _, key in ipairs({ k.ring(scope), k.tags(scope) }) do
    local tag = tag_in(call('ZSCORE', key, lane.tenant))
    if tag then return call('ZADD', key, tag + by, lane.tenant) end
  end
end

-- The delivery is charged so much more, or less, than it was.
local function correct(lane, turn, by)
  if by == 0 or policy.by_seq then return end
  local charged = weights.charge(lane.tenant, by)
  move_lane(lane, by)
  local moved = move(lane.pool_scope, lane.tenant, charged)
  if not moved and by > 0 and not policy.in_rounds then owe(lane, turn, charged) end
  guarantees.again(lane.pool_scope, lane.tenant)
  for _, group in ipairs(lane.groups) do
    if group ~= 'tenant' .. US .. lane.tenant then move_waiter(lane, group, charged) end
  end
end

local function unpack_charge(text)
  local charged, turn = string.match(text, '^(%S+) (%S+)$')
  return tag_in(charged), tag_in(turn)
end

-- It took so long. Before the message goes to its next place: what enters turns on the way enters by the right tags.
function corrections.measured(lease, seconds)
  local lane = lane_of(lease.lane)
  local charged, turn = unpack_charge(lease.charge)
  call('HSET', k.tenant(lane.tenant), 'mean_us', int(charges.learn(lane.tenant, seconds)))
  if not charged then return end
  service.correct(lane, seconds - charged)
  correct(lane, turn, seconds - charged)
end

-- Its handler never began: it was served nothing.
function corrections.undone(lease)
  local lane = lane_of(lease.lane)
  local charged, turn = unpack_charge(lease.charge)
  if not charged then return end
  service.correct(lane, -charged)
  correct(lane, turn, -charged)
end
