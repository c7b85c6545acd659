-- explain: why a message is where it is; nothing is written. What stops a claim from taking it is told by the rules
-- that the claim has. Bounded: of each group at most 100 holders are looked at, of those with turns before it five.
-- ARGV schema now:int mid
-- FLAGS no-writes,allow-oom
-- REPLY nothing, or: instant, header, via, budget of attempts, lease, deadline or due time, note, messages before it
-- in its lane, lanes of its tenant before it, tenants before it, names of these, what stops it: rows, first the kind
-- @include transition
-- @include expiring
-- @include rivals
-- @include claim_admit
-- @include ahead
-- @include ahead_of

guarantees.held = held_in -- nothing is taken here, and a group that cannot be read is not marked
local MOST_HOLDERS, MOST_NAMED = 100, 5
local text = call('HGET', k.head, mid)
local h = header_of(mid, text)
if not h then return {} end
local lane = lane_of(h.lane)
local parked_at = call('HGET', parked_key(lane), lane.name)
local stops = {}

local function holders_of(group)
  local page = try('HSCAN', k.slots(group), '0', 'COUNT', MOST_HOLDERS)
  local slots, found = not failed(page) and page[2] or {}, {}
  for i = 1, math.min(#slots, 2 * MOST_HOLDERS), 2 do
    found[#found + 1] = { slots[i], call('HGET', k.leases, slots[i]) or '' }
  end
  return found
end

-- Nobody has come for its lane, which is parked at the group. With the token of a rate that has come meanwhile the next
-- claim does.
local function waits_at(group, woken)
  if parked_at ~= group or call('HEXISTS', woken_key(lane.pool, group), lane.name) == 1 then return false end
  return not rates.of(group) or rates.room(group) <= woken
end

-- Would a claim that comes to the lane be kept out by this group alone? What is free is promised to others then.
local function kept_out(group, own, woken)
  if own then return rates.tokens(group) <= woken end
  if parked_at == group then return waits_at(group, woken) end
  return blocking_group(setmetatable({ groups = { group } }, { __index = lane })) ~= nil
end

local function out_of_slots(group, limit, held, woken)
  stops[#stops + 1] = { 'limit', group, int(limit), held, woken, holders_of(group) }
end

-- When there are so many tokens, after `taken` more are gone; -1: never.
local function token_at(bucket, tokens, taken)
  local left = setmetatable({ debt = bucket.debt + taken * bucket.per }, { __index = bucket })
  local at = bucket.n > 0 and rates.instant_of(left, tokens)
  return at and int(at) or '-1'
end

-- `promised`: of the tokens that are there. Told are the next one that comes, and the first one for the message: when
-- all who were promised one have taken it.
local function out_of_tokens(group, promised)
  local bucket, tokens = rates.of(group), rates.tokens(group)
  stops[#stops + 1] = {
    'rate', group, int(bucket.n), int(bucket.per), int(bucket.burst), int(tokens), promised,
    token_at(bucket, tokens + 1, 0), token_at(bucket, 1, promised),
  }
end

-- What of the group stops the message: slots, tokens, or that all of them are promised to others. Its own slot from
-- before is room for it.
local function look_at_room(group, held)
  local limit, tokens = limit_of(group), rates.tokens(group)
  local own, woken = call('HEXISTS', k.slots(group), mid) == 1, call('HLEN', woken_key(lane.pool, group))
  local full = limit and held - (own and 1 or 0) >= limit
  if full then out_of_slots(group, limit, held, woken) end
  if tokens <= 0 then out_of_tokens(group, 0) end
  if full or tokens <= 0 or not kept_out(group, own, woken) then return end
  if limit and not own and limit - held <= woken then return out_of_slots(group, limit, held, woken) end
  if rates.of(group) then return out_of_tokens(group, woken) end
  if limit then out_of_slots(group, limit, held, woken) end
end

local function look_at_group(group)
  local held, state = held_in(group), dirty_state(group)
  if not held or state == 'closed' then
    stops[#stops + 1] = { 'repair', group, held and 'closed' or 'unreadable' }
  else
    look_at_room(group, held)
  end
end

-- Each pause that stands by itself, whether or not a claim has met it.
local function look_at_pauses()
  local names = {}
  for _, tenant in ipairs({ '', lane.tenant }) do
    for _, queue in ipairs({ '', lane.queue }) do
      names[#names + 1] = pauses.name_of(tenant, queue, lane.pool)
      if tenant ~= '' or queue ~= '' then names[#names + 1] = pauses.name_of(tenant, queue, '') end
    end
  end
  local found = try('HMGET', k.pauses, unpack(names))
  if failed(found) then
    stops[#stops + 1] = { 'repair', '', 'pauses' } -- claims are refused
    return
  end
  for i, name in ipairs(names) do
    if found[i] then stops[#stops + 1] = { 'paused', name, found[i] } end
  end
end

-- A ready message that no claim comes by: its lane is not where turns are taken. Reconcile puts that right.
local function look_for_place(place, turn)
  if call('HEXISTS', k.stopped, lane.name) == 1 or failed(place) then
    stops[#stops + 1] = { 'repair', '', 'lane' }
  elseif not place then
    stops[#stops + 1] = { 'repair', '', 'place' }
  elseif not parked_at and not turn then
    stops[#stops + 1] = { 'repair', '', 'turn' }
  end
end

local place, lanes_before, tenants_before, names = false, nil, nil, {}
if h.state == 'r' then
  place = try('ZRANK', k.lane(lane.name), mid)
  lanes_before = ahead.of(lane.scope, lane.name, 0)
  if not (parked_at and pauses.named_by(parked_at)) then
    local scope = parked_at and group_scope(lane.pool, parked_at) or lane.pool_scope
    tenants_before, names = ahead.of(scope, lane.tenant, MOST_NAMED)
  end
  look_for_place(place, lanes_before and tenants_before)
  if pauses.of_pool(lane.pool) or pauses.stopping(lane) then -- it stands in no line, whether or not a claim has met it
    lanes_before, tenants_before, names = nil, nil, {}
  end
end
if h.state == 'r' or h.state == 'd' then
  look_at_pauses()
  if failed(try('HLEN', k.rates)) then
    stops[#stops + 1] = { 'repair', '', 'rates' } -- claims are refused
  else
    for _, group in ipairs(lane.groups) do look_at_group(group) end
  end
end

local due = h.state == 'f' and call('ZSCORE', k.deadlines, mid) or h.state == 'd' and call('ZSCORE', k.delayed, mid)
return {
  int(now), text, h.via, h.max_attempts ~= '' and h.max_attempts or settings.max_attempts, call('HGET', k.leases, mid),
  due, call('HGET', k.notes, mid), type(place) == 'number' and ahead.in_lane(lane, place) or -1,
  lanes_before or -1, tenants_before or -1, names, stops,
}
