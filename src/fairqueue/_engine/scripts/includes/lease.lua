-- The in-flight record: token, consumer, when claimed, attempt, the retry budget in force, what was charged and the
-- tenant's turn after that (charges.lua; '' where it was destroyed), and the lane, whose groups are the slots it took.
-- Freeing never looks at metadata or settings.
-- SHARES unpack_lease lease_of_header LONGEST_MS deadline_of pack_lease
local LEASE = '^([^\31]+)\31([^\31]*)\31(%d+)\31(%d+)\31(%d*)\31(%d*)\31([^\31]*)'
  .. '\31([^\31]+\31[^\31]+\31[^\31]+.*)$'

local function unpack_lease(text)
  if not text then return nil end
  local token, consumer, claimed_at, attempt, max_attempts, max_crashes, charge, lane = string.match(text, LEASE)
  if not token then return nil end
  return {
    token = token, consumer = consumer, claimed_at = claimed_at, attempt = tonumber(attempt),
    max_attempts = tonumber(max_attempts), max_crashes = tonumber(max_crashes), charge = charge, lane = lane,
  }
end

-- The record of a message in flight whose own was destroyed, from what its header knows.
local function lease_of_header(h, consumer)
  return {
    token = h.token, consumer = consumer, claimed_at = h.moved_at, attempt = h.attempt,
    max_attempts = h.max_attempts ~= '' and h.max_attempts or settings.max_attempts,
    max_crashes = settings.max_crashes, charge = '', lane = h.lane,
  }
end

-- The instant at which a lease expires; nil where there is none, or one that no visibility timeout can have set: it
-- would hold the slots of a dead worker for good.
local LONGEST_MS = 36525 * 86400000 -- as in validation.py
local function deadline_of(mid)
  local at = tonumber(call('ZSCORE', k.deadlines, mid))
  if at and at <= now + LONGEST_MS then return at end
end

local function pack_lease(l)
  return table.concat({
    l.token, l.consumer, l.claimed_at, l.attempt, l.max_attempts or '', l.max_crashes or '', l.charge, l.lane,
  }, US)
end
