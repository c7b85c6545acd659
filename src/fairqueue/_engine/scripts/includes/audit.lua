-- What the self-check's steps share. A subject is a name whose parts the reader joins with '/'.
local findings = {}
if fix == 0 then READ_ONLY = true end -- a look changes nothing

local function found(check, subject, evidence) findings[#findings + 1] = { check, subject, evidence } end

local lanes_checked = {}

local function not_waiting(lane, group)
  local named = string.gsub(group, US, '/')
  if not call('ZSCORE', waiting_key(lane.pool, group, lane.tenant), lane.name) then
    return 'the lane is parked at ' .. named .. ' but not on its waiting list'
  end
  if not call('ZSCORE', k.ring(group_scope(lane.pool, group)), lane.tenant) then
    return 'the lane waits at ' .. named .. ' but its tenant is not on the list there'
  end
  if call('SISMEMBER', k.waiters(group), lane.pool) == 0 then
    return 'the lane waits at ' .. named .. ' but its pool is not known there'
  end
end

-- Does the key hold what it should? With fix one that does not is removed: it is filled again from the messages.
local function sound(key, wanted, subject)
  local is = call('TYPE', key).ok
  if is == 'none' or is == wanted then return true end
  found('MOVES', subject, 'the key ' .. string.sub(key, #root + 1) .. ' holds a ' .. is .. ', not a ' .. wanted)
  if fix == 1 then call('UNLINK', key) end
  return fix == 1
end

-- Tags that no turn can be taken by: who has one would be first, or last, for good. So would who is further ahead of
-- virtual time than anything it was served could bring it. With fix they are those of virtual time, as a claim takes
-- the first kind where it meets them.
local MOST_TAGS, FARTHEST = 100, 2 ^ 40
local function check_tags(key, scope, subject)
  local highest = math.min(LARGEST_TAG, clock(scope) + FARTHEST)
  local bounds = { string.format('(%.0f', highest), string.format('(-%.0f', LARGEST_TAG) }
  local above = call('ZRANGEBYSCORE', key, bounds[1], '+inf', 'LIMIT', 0, MOST_TAGS)
  local below = call('ZRANGEBYSCORE', key, '-inf', bounds[2], 'LIMIT', 0, MOST_TAGS)
  for _, members in ipairs({ above, below }) do
    for _, member in ipairs(members) do
      found('MOVES', subject, 'the tag of ' .. string.gsub(member, US, '/') .. ' is no number that turns are taken by')
      if fix == 1 then call('ZADD', key, string.format('%.17g', clock(scope)), member) end
    end
  end
end

-- Who goes before the others takes turns with them.
local function check_below(scope, subject)
  if not sound(k.below(scope), 'zset', subject) then return end
  for _, tenant in ipairs(call('ZRANGE', k.below(scope), 0, MOST_TAGS - 1)) do
    if not call('ZSCORE', k.ring(scope), tenant) then
      found('MOVES', subject, tenant .. ' is among those who go first but takes no turns')
      if fix == 1 then call('ZREM', k.below(scope), tenant) end
    end
  end
end

-- Slots that cannot be counted are found where they are needed too, for nobody may ever have held one. Reconcile mends
-- them.
local function check_countable(group)
  local is = other_type(k.slots(group), 'hash')
  if not is then return end
  found('SLOTS', group, 'the slots key holds a ' .. is .. ', not a hash')
  if fix == 1 then call('SADD', k.groups, group) end
end

local function sound_keys(lane)
  local subject, ok = 'lane' .. US .. lane.name, true
  local function look(key, wanted) ok = sound(key, wanted, subject) and ok end
  for _, scope in ipairs({ lane.pool_scope, lane.scope }) do
    look(k.ring(scope), 'zset')
    look(k.tags(scope), 'zset')
  end
  look(parked_key(lane), 'hash')
  look(k.blocked(lane.pool), 'set')
  for _, group in ipairs(lane.groups) do
    local scope = group_scope(lane.pool, group)
    look(k.ring(scope), 'zset')
    look(k.tags(scope), 'zset')
    look(k.waiters(group), 'set')
    look(woken_key(lane.pool, group), 'hash')
    look(waiting_key(lane.pool, group, lane.tenant), 'zset')
    check_countable(group)
  end
  return ok
end

-- A lane with ready messages takes turns or waits; a tenant with lanes that take turns takes turns itself.
local function check_lane(lane, h)
  if lanes_checked[lane.name] then return end
  lanes_checked[lane.name] = true
  if not sound_keys(lane) then return end
  for _, group in ipairs(lane.groups) do
    check_tags(waiting_key(lane.pool, group, lane.tenant), lane.scope, 'lane' .. US .. lane.name)
  end
  local in_ring = call('ZSCORE', k.ring(lane.scope), lane.name)
  local parked_at = call('HGET', parked_key(lane), lane.name)
  local stopped
  if not in_ring and not parked_at then
    stopped = 'the lane has ready messages but neither takes turns nor waits at a group'
  elseif in_ring and not call('ZSCORE', k.ring(lane.pool_scope), lane.tenant) then
    stopped = 'the tenant has claimable lanes but takes no turns in its pool'
  elseif parked_at and not in_ring then
    stopped = not_waiting(lane, parked_at)
  end
  if not stopped then return end
  found('MOVES', 'lane' .. US .. lane.name, stopped)
  if fix == 1 then
    if parked_at then unpark(lane, parked_at) end
    lane_ready(lane, h.seq)
  end
end
