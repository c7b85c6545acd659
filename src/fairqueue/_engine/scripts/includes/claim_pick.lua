-- Choosing. Tenants take turns in the pool, lanes take turns in their tenant; only tags are written meanwhile.
local picks, touched, batons = {}, {}, {} -- chosen; lanes to look at at the end of this script; groups to wake at
local drops = {} -- lane -> index entries without a ready message
local MAX_PARKS, MAX_STALE = 200, 1000
local parks, stale = 0, 0

local function exhausted() return parks >= MAX_PARKS or stale >= MAX_STALE end

local pick_from
do
  local MAX_BARRED = 200
  local FEW, MORE = 2, 16 -- most lanes are asked for one message and whether there is another
  local barred = 0 -- lanes met at groups that must be reconciled first
  local taken = {}
  local aside = {} -- passed over until the end of this script

  -- Who is barred stays in the ring, in front of the others; the caller reconciles before it looks again.
  local function must_stop() return exhausted() or barred >= MAX_BARRED end

  -- The smallest tag in a scope that was not passed over. Those passed over stay in the ring, so one more than they are
  -- is enough to look at.
  local function first_in(scope)
    local member, tag = first(scope)
    local passed = aside[scope]
    if not member or not passed or not passed[member] then return member, tag end
    local top = call('ZRANGE', k.ring(scope), 0, passed[1], 'WITHSCORES')
    for i = 1, #top, 2 do
      if not passed[top[i]] then return top[i], tag_in(top[i + 1]) or clock(scope) end
    end
  end

  -- [1] is how many were passed over in the scope; members are texts.
  local function pass_over(scope, member)
    local passed = aside[scope] or { 0 }
    aside[scope] = passed
    if not passed[member] then passed[1], passed[member] = passed[1] + 1, true end
  end

  -- The lane is out of this script; so is its tenant when none of its lanes is left in it.
  local function pass_over_lane(lane)
    pass_over(lane.scope, lane.name)
    if not first_in(lane.scope) then pass_over(lane.pool_scope, lane.tenant) end
  end

  -- An index entry whose header says otherwise, or has none, is dropped; a message whose header names another lane goes
  -- there, without a header the body goes too.
  local function drop_entry(lane, mid, text)
    drops[lane] = drops[lane] or {}
    table.insert(drops[lane], mid)
    stale = stale + 1
    if text then
      local h = readable_header(mid, text, 'r', lane.name)
      return h and h.state == 'r' and make_ready(mid, h)
    end
    drop_body(mid)
    tally('dropped_entries', 1)
  end

  -- Refills the lane's buffer; false at its end, or when its key holds another type: that stops this lane alone.
  local function refill(lane)
    local from = lane.fetched or 0
    local part = try('ZRANGE', k.lane(lane.name), from, from + (from == 0 and FEW or MORE) - 1)
    if failed(part) then
      lane.broken = true
      return false
    end
    lane.fetched, lane.buffer, lane.at = from + #part, part, 1
    return #part > 0
  end

  -- The lane's next ready message: { mid, header }.
  local function peek(lane)
    if lane.next then return lane.next end
    while stale < MAX_STALE do
      if not lane.buffer or lane.at > #lane.buffer then
        if not refill(lane) then return nil end
      end
      local mid = lane.buffer[lane.at]
      lane.at = lane.at + 1
      if not taken[mid] then
        local text = call('HGET', k.head, mid)
        local h = unpack_header(text)
        if h and h.state == 'r' and h.lane == lane.name then
          lane.next = { mid = mid, header = h }
          return lane.next
        end
        drop_entry(lane, mid, text)
      end
    end
  end

  -- Is anything left after what was taken? Cheaper than peek: nobody needs its header yet.
  local function has_more(lane)
    if lane.next then return true end
    while lane.buffer and lane.at <= #lane.buffer or refill(lane) do
      if not taken[lane.buffer[lane.at]] then return true end
      lane.at = lane.at + 1
    end
    return false
  end

  -- The slot that was promised to the lane, or one that it takes over; true if it was its own baton.
  local function answer_promises(gate, lane, group, cost)
    if not gate.woken then return false end
    if use_baton(lane, group, cost) then return true end
    local rival = not has_room(gate, lane, group) and rival_of(lane, group)
    if not rival then return false end
    parks = parks + 1 -- whoever lost a promise is parked
    for baton, count in pairs(take_over(lane, group, cost, rival)) do
      keep_for_waiters(baton, count)
      batons[baton] = true
    end
    return false
  end

  local function choose(lane, found)
    picks[#picks + 1] = { mid = found.mid, header = found.header, lane = lane }
    taken[found.mid] = true
    if lane.next and lane.next.mid == found.mid then lane.next = nil end
    for _, group in ipairs(lane.groups) do
      local gate = gate_of(group)
      -- over its own leftover it takes no more than it holds: the next one is judged by what is really held
      local over = found.over and call('HEXISTS', k.slots(group), found.mid) == 1
      if answer_promises(gate, lane, group, tonumber(found.header.cost)) then batons[group] = true end
      if not over then gate.held, gate.taken = gate.held + 1, gate.taken + 1 end
    end
  end

  -- Only lanes of this tenant wait at the group, which is a limit of its own.
  local function is_alone(lane, group)
    local scope = group_scope(lane.pool, group)
    return call('ZCARD', k.ring(scope)) == 1 and call('ZSCORE', k.ring(scope), lane.tenant)
  end

  -- A slot of a tenant's own limit that the lane cannot take is for another lane of it, at once: at the end of this
  -- script its turns would have gone to others. Who shares a group gets what is handed back there at the end, together
  -- with what comes free elsewhere.
  local function park_at(lane, group, lane_tag, tenant_tag)
    parks = parks + 1
    if lane.listed then lane.listed[group] = nil end
    for baton, count in pairs(park(lane, group, lane_tag, tenant_tag)) do
      if is_alone(lane, baton) then
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
    local mid, elsewhere = own_leftover(lane, group, taken)
    local h = mid and unpack_header(call('HGET', k.head, mid))
    if h and h.state == 'r' and h.lane == lane.name then return { mid = mid, header = h, over = true } end
    return nil, elsewhere
  end

  local function serve(lane, found, lane_tag, tenant_tag)
    local cost = tonumber(found.header.cost)
    set_clock(lane.scope, lane_tag)
    set_clock(lane.pool_scope, tenant_tag)
    choose(lane, found)
    local following = policy.by_seq and peek(lane) or not policy.by_seq and has_more(lane)
    lane_tag = policy.lane_served(lane_tag, cost, policy.by_seq and following and following.header.seq or lane_tag)
    call('ZADD', k.ring(lane.scope), lane_tag, lane.name)
    local function least()
      local _, tag = first_in(lane.scope)
      return tag or tenant_tag
    end
    if not following then
      pass_over_lane(lane)
      touched[lane] = true
    end
    tenant_tag = policy.tenant_served(tenant_tag, cost, least)
    call('ZADD', k.ring(lane.pool_scope), tenant_tag, lane.tenant)
    return following, lane_tag, tenant_tag
  end

  -- Parks the lane unless it may go on; true if it was parked or passed over.
  local function kept_out(lane, lane_tag, tenant_tag)
    lane.readmitted = nil
    local group, must_reconcile = blocking_group(lane)
    if not group then return false end
    local found, elsewhere = leftover_of(lane, group)
    if found then
      lane.readmitted = found
      return false
    end
    if elsewhere and not must_reconcile then group, must_reconcile = elsewhere, gate_of(elsewhere).dirty end
    if must_reconcile then
      dirty[group] = true
      barred = barred + 1
      pass_over_lane(lane)
      return true
    end
    park_at(lane, group, lane_tag, tenant_tag)
    if policy.by_seq then
      local _, least = first_in(lane.scope)
      if least then call('ZADD', k.ring(lane.pool_scope), 'XX', least, lane.tenant) end
    end
    return true
  end

  -- Tags that are sequence numbers fall behind when the message they stand for ends elsewhere: they are moved up first.
  local function fell_behind(lane, found, lane_tag, tenant_tag)
    local seq = found.header.seq
    if not policy.by_seq or seq <= lane_tag and seq <= tenant_tag then return false end
    stale = stale + 1 -- many at once after a change of the scheduler
    call('ZADD', k.ring(lane.scope), seq, lane.name)
    local _, least = first_in(lane.scope)
    call('ZADD', k.ring(lane.pool_scope), least, lane.tenant)
    return true
  end

  local function visit(lane, lane_tag, tenant_tag)
    local found = peek(lane)
    if not found then
      touched[lane] = true
      return pass_over_lane(lane)
    end
    if fell_behind(lane, found, lane_tag, tenant_tag) or kept_out(lane, lane_tag, tenant_tag) then return end
    found, lane.readmitted = lane.readmitted or found, nil
    local following
    following, lane_tag, tenant_tag = serve(lane, found, lane_tag, tenant_tag)
    -- blocking is paid for when it happens: who is full now leaves the ring now, and no later claim meets it
    if following then kept_out(lane, lane_tag, tenant_tag) end
    for group in pairs(lane.listed or {}) do leave_list(lane, group) end
    lane.listed = nil
  end

  -- The next tenant. A name that no tenant can have, put here by hand, would be met again and again: its rings and
  -- lists are those of others.
  local function first_tenant(scope)
    while true do
      local tenant, tag = first_in(scope)
      if not tenant or is_name(tenant) then return tenant, tag end
      call('ZREM', k.ring(scope), tenant)
    end
  end

  -- A tenant that takes turns without a lane: left by a script that was cut, or its ring was evicted or deleted.
  local function leave_without_lane(any, tenant_tag)
    if call('EXISTS', parked_key(any)) == 0 and (tonumber(call('HGET', k.tenant(any.tenant), 'r')) or 0) > 0 then
      to_be_rebuilt() -- reconcile writes the rings again, from the messages
    end
    tenant_changed(any, tenant_tag)
  end

  function pick_from(pool, wanted)
    local scope = 'p' .. US .. pool
    while #picks < wanted and not must_stop() do
      local tenant, tenant_tag = first_tenant(scope)
      if not tenant then return end
      local own = 't' .. US .. pool .. US .. tenant
      local name, lane_tag = first_in(own)
      local lane = name and own_lane(name, pool, tenant)
      if lane then
        visit(lane, lane_tag, tenant_tag)
      elseif name then
        call('ZREM', k.ring(own), name) -- a stranger: its own rings would be looked at, and this one for ever
      else
        local any = lane_of(tenant .. US .. 'none' .. US .. pool)
        if call('EXISTS', k.ring(any.scope)) == 1 then
          pass_over(scope, tenant)
        else
          leave_without_lane(any, tenant_tag)
        end
      end
    end
  end
end
