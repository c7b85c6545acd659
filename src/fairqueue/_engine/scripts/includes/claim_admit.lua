-- Who is let in. A group's state is read once and counted on while this script takes slots.
-- SHARES gates dirty gate_of has_room keep_for_waiters blocking_group own_leftover dirty_found
local gates, dirty = {}, {}

local function gate_of(group)
  local gate = gates[group]
  if gate then return gate end
  local held = held_in(group)
  if not held then mark_dirty(group, 'dirty') end
  local state = dirty_state(group)
  gate = {
    limit = limit_of(group), held = held, dirty = state, closed = state == 'closed' or not held,
    taken = 0, handed_back = 0,
  }
  gates[group] = gate
  return gate
end

guarantees.held = function(group) return gate_of(group).held end

-- Do so many slots, or tokens, let this lane in? Those that woken lanes were promised are not free for others. When
-- there are more promises than slots (the limit was lowered) the first holder in the pool's order comes in, not the
-- last.
local function suffices(free, gate, lane, group)
  local woken = call('HLEN', woken_key(lane.pool, group))
  gate.woken = woken > 0
  if woken > 0 and batons_of(lane, group) > 0 then return free > 0 end
  return free > woken + gate.handed_back
end

-- Slots that are free, as far as there are tokens for them.
local function free_in(gate, group)
  return math.min(gate.limit and gate.limit - gate.held or math.huge, rates.tokens(group))
end

local function has_room(gate, lane, group) return suffices(free_in(gate, group), gate, lane, group) end
local function has_token(gate, lane, group) return suffices(rates.tokens(group), gate, lane, group) end

-- A slot that was handed back in this script is for one of those who wait: they are woken at its end, the least served
-- first, and whoever comes by until then is one of them.
local function keep_for_waiters(group, count)
  local gate = gate_of(group)
  gate.handed_back = gate.handed_back + count
end

-- A group that is full of promises alone lets in whoever may take one over.
local function lets_in(gate, lane, group)
  if has_room(gate, lane, group) then return true end
  return free_in(gate, group) > 0 and rival_of(lane, group) ~= nil
end

-- The group that keeps this lane out, and whether it must be reconciled before anybody may wait at it: one that cannot
-- be counted goes first, else the lane would wait at another and nobody would meet the broken one.
local function blocking_group(lane)
  local full
  for _, group in ipairs(lane.groups) do
    local gate = gate_of(group)
    if gate.closed then return group, true end
    if not full and not lets_in(gate, lane, group) then full = group end
  end
  return full, full and gate_of(full).dirty
end

-- The group that keeps this message out although its own leftover slots count for nothing (held minus its own must be
-- below every limit); nil: it may come in. No group of the lane is closed.
local function keeps_out(lane, mid)
  for _, group in ipairs(lane.groups) do
    local gate = gate_of(group)
    if gate.limit and call('HEXISTS', k.slots(group), mid) == 1 then
      if gate.held - 1 >= gate.limit then return group end
      if not has_token(gate, lane, group) then return group end
    elseif not has_room(gate, lane, group) then
      return group
    end
  end
end

-- Where the lane's messages begin that this script has not looked at yet.
local function unread_from(lane)
  if not lane.buffer then return 0 end
  return math.max(0, lane.fetched - (#lane.buffer - lane.at + 1) - (lane.next and 1 or 0))
end

-- Who of the lane may have a slot in the group from before: among few holders all are looked at; among many (most of
-- them at work) the lane's next messages are, and a leftover further back is reconcile's.
local function holders_in(lane, group, held)
  if held <= MAX_HOLDERS then return call('HKEYS', k.slots(group)) end
  local from, found = unread_from(lane), {}
  local mids = try('ZRANGE', k.lane(lane.name), from, from + MAX_HOLDERS - 1)
  if failed(mids) then return found end
  local tokens = get_many(k.slots(group), mids)
  for i, mid in ipairs(mids) do
    if tokens[i] then found[#found + 1] = mid end
  end
  return found
end

-- A ready message of this lane, wherever it stands in it, that still has a slot in the full group from before and may
-- come in over it. Looked for when the lane would be parked. If another group keeps such a message out, that is where
-- the lane has to wait: its own leftover would never wake it.
local function own_leftover(lane, group, taken)
  local gate, elsewhere = gate_of(group), nil
  if gate.closed or not has_token(gate, lane, group) then return nil end
  for _, mid in ipairs(holders_in(lane, group, gate.held)) do
    if not taken[mid] and tenant_of(mid) == lane.tenant and call('ZSCORE', k.lane(lane.name), mid) then
      local by = keeps_out(lane, mid)
      if not by then return mid end
      if by ~= group then elsewhere = by end
    end
  end
  return nil, elsewhere
end

local function dirty_found()
  local found = {}
  for group in pairs(dirty) do found[#found + 1] = group end
  return found
end
