-- audit_heads: a page of messages, each against the place its header names. With fix, the place is written
-- again.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit
-- @include expiring

-- A counter that is behind what it gave out would give it out again, and new messages would overtake old ones.
local given_out = {}
for _, name in ipairs({ 'seq', 'dead' }) do given_out[name] = count_in(call('HGET', k.counters, name)) or 0 end

local behind = {} -- said once a page
local function at_least(name, given)
  if not given or given <= given_out[name] then return end
  if not behind[name] then
    found('CLEAN', 'counters' .. US .. name, 'the counter is at ' .. int(given_out[name]) .. ', less than it gave out')
  end
  behind[name], given_out[name] = true, given
  if fix == 1 then call('HSET', k.counters, name, int(given)) end
end

-- What could not be ended when it expired is tried again a little later.
local function check_expiry(mid, h)
  local at = expiring.instant(h)
  local listed = at and tonumber(call('ZSCORE', k.expiring, mid))
  if not at or listed and listed <= math.max(at, now + RETRY_LANE_MS) then return end
  found('MOVES', mid, listed and 'the message expires before it is looked for' or 'the message is not listed to expire')
  if fix == 1 then expiring.list(mid, h) end
end

local checks = {}

function checks.r(mid, h)
  local lane = lane_of(h.lane)
  local held = other_type(k.lane(h.lane), 'zset')
  local place = not held and call('ZSCORE', k.lane(h.lane), mid)
  if held then
    found('KEEP', 'lane' .. US .. h.lane, 'the lane key holds a ' .. held .. ', not a zset')
    if fix == 1 then call('UNLINK', k.lane(h.lane)) end
  elseif not place then
    found('KEEP', mid, 'the message is ready but not in its lane')
  elseif tonumber(place) ~= lane_score(h) then
    found('KEEP', mid, 'the message stands at another place in its lane than its header says')
  end
  if fix == 1 and (not place or tonumber(place) ~= lane_score(h)) then make_ready(mid, h) end
  check_expiry(mid, h)
  check_lane(lane, h)
end

function checks.d(mid, h)
  check_expiry(mid, h)
  local due = tonumber(call('ZSCORE', k.delayed, mid))
  if tonumber(call('ZSCORE', k.delayed_names, mid)) ~= 0 then
    found('KEEP', mid, 'the message is delayed but not listed by its name')
    if fix == 1 then call('ZADD', k.delayed_names, 0, mid) end
  end
  if due == tonumber(h.moved_at) then return end
  local missing = 'the message is delayed but no due time is set'
  found('KEEP', mid, due and 'the due time is not the one its header says' or missing)
  if fix == 1 then call('ZADD', k.delayed, h.moved_at, mid) end
end

function checks.f(mid, h)
  local lease = unpack_lease(call('HGET', k.leases, mid))
  if not lease then
    found('OWNER', mid, 'the message is in flight but has no lease record')
  elseif lease.token ~= h.token then
    found('OWNER', mid, 'the lease record has token ' .. lease.token .. ', the message ' .. h.token)
  end
  local damaged = not lease or lease.token ~= h.token or lease.lane ~= h.lane
  if lease and lease.token == h.token and lease.lane ~= h.lane then
    found('OWNER', mid, 'the lease record lists other groups than the message')
  end
  if fix == 1 and h.token == '' then
    -- of the two it is the header that was damaged; without any token nobody can own the message
    h.token = lease and lease.token or '00000000.0.lost'
    put_header(mid, h)
  end
  if fix == 1 and damaged then
    -- before reconcile takes its slots for ghosts: whoever runs it still does
    call('HSET', k.leases, mid, pack_lease(lease_of_header(h, '')))
  end
  -- reconcile gives it a whole visibility timeout: whoever runs it is not to be doubled
  if not deadline_of(mid) then
    found('OWNER', mid, 'the message is in flight but has no deadline, or one that never comes')
  end
end

function checks.x(mid)
  local tenant = tenant_of(mid)
  local held = other_type(k.dead(tenant), 'zset')
  local place = not held and call('ZSCORE', k.dead(tenant), id_of(mid))
  if held then
    found('KEEP', 'dead' .. US .. tenant, 'the dead letters key holds a ' .. held .. ', not a zset')
    if fix == 1 then
      to_be_rebuilt() -- first: letters that were listed before this page are on no list now
      call('UNLINK', k.dead(tenant))
    end
  elseif not place or tonumber(place) < 0 or tonumber(place) >= SEQS then
    place = nil
    found('KEEP', mid, 'the message is dead but not among the dead letters, or at no place there')
  else
    at_least('dead', math.floor(tonumber(place)))
    if call('ZCOUNT', k.dead(tenant), place, place) > 1 then
      place = nil -- it goes to the end; the last of them stays
      found('KEEP', mid, 'the message is at the place of another among the dead letters')
    end
  end
  if fix == 1 and not place then
    given_out.dead = numbers('dead', 1)
    call('ZADD', k.dead(tenant), given_out.dead, id_of(mid))
  end
  if fix == 1 then call('SADD', k.dead_tenants, tenant) end
end

-- A payload that is gone: nobody can run the message any more, so it goes where a claim would send it. One in flight
-- may well be with somebody who has read it, one that is dead is where it belongs.
local function check_body(mid, h)
  local from = h.state
  if from == 'x' or call('HEXISTS', k.body, mid) == 1 then return end
  found('KEEP', mid, 'the payload is missing')
  if fix == 0 or from == 'f' then return end
  moved_between(tenant_of(mid), from, make_dead(mid, h, 'undecodable', 'the stored payload is missing'))
  if from == 'r' then
    try('ZREM', k.lane(h.lane), mid)
    lane_emptied(lane_of(h.lane))
  elseif h.state == 'x' then
    call('ZREM', k.delayed, mid)
    call('ZREM', k.delayed_names, mid)
  end
end

local page = call('HSCAN', k.head, cursor, 'COUNT', 100)
local heads = page[2]
for i = 1, #heads, 2 do
  local mid, text = heads[i], heads[i + 1]
  local h = header_of(mid, text)
  if not h then
    found('KEEP', mid, 'the header cannot be read')
    if fix == 1 then readable_header(mid, text, 'f') end
  else
    at_least('seq', tonumber(h.seq))
    checks[h.state](mid, h)
    check_body(mid, h)
  end
end
if fix == 1 then flush_moves() end
return { page[1], #heads / 2, findings }
