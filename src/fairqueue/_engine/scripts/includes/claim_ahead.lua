-- What stands next in a lane: ready, not expired, not taken by this claim. What is no longer there is dropped.
-- SHARES ahead drops
local ahead = { taken = {} }
local drops = {} -- lane -> index entries without a ready message
local FEW, MORE = 2, 16 -- most lanes are asked for one message and whether there is another

local function take_out(lane, mid)
  drops[lane] = drops[lane] or {}
  table.insert(drops[lane], mid)
  bounds.stale = bounds.stale + 1
end

-- An index entry whose header says otherwise, or has none, is dropped; a message whose header names another lane goes
-- there, without a header the body goes too.
local function drop_entry(lane, mid, text)
  take_out(lane, mid)
  if text then
    local h = readable_header(mid, text, 'r', lane.name)
    return h and h.state == 'r' and make_ready(mid, h)
  end
  drop_remains(mid)
  tally('dropped_entries', 1)
end

-- One that was not started in time and that the sweep has not come to.
local function end_expired(lane, mid, h)
  if expiring.ends(mid, h) == 'r' then bounds.stale = bounds.stale + 1 else take_out(lane, mid) end
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
function ahead.peek(lane)
  if lane.next then return lane.next end
  while not bounds.many_stale() do
    if not lane.buffer or lane.at > #lane.buffer then
      if not refill(lane) then return nil end
    end
    local mid = lane.buffer[lane.at]
    lane.at = lane.at + 1
    if not ahead.taken[mid] then
      local text = call('HGET', k.head, mid)
      local h = unpack_header(text)
      if not h or h.state ~= 'r' or h.lane ~= lane.name then
        drop_entry(lane, mid, text)
      elseif expiring.passed(h) then
        end_expired(lane, mid, h)
      else
        lane.next = { mid = mid, header = h }
        return lane.next
      end
    end
  end
end

-- Is anything left after what was taken? Cheaper than peek: nobody needs its header yet.
function ahead.has_more(lane)
  if lane.next then return true end
  while lane.buffer and lane.at <= #lane.buffer or refill(lane) do
    if not ahead.taken[lane.buffer[lane.at]] then return true end
    lane.at = lane.at + 1
  end
  return false
end
