-- The packed header of a message: the one truth about where it is. No text in it may hold the separator.
--   state  r ready, d delayed, f in flight, x dead
--   via    how it came there: e enqueue, c reclaim, f fail, l release, v redrive
--   expires  the instant by which it must have been started, with '!' after it where it is dropped then; or ''
--   marked   c: cancelled while it ran; or ''
-- `lane` is the tail and names tenant, queue, pool and groups.
-- SHARES SEQS lane_score seq_of_score unpack_header header_of pack_header
local HEADER = '^([rdfx])\31([^\31]*)\31(%l)\31(%d+)\31(%d+)\31(%d+)\31(%d+)\31(%d)\31(%d*)\31(%-?%d%d?%d?)'
  .. '\31(%d%d?%d?%d?%.?%d*)\31(%d+)\31(%d+)\31(%d+)\31(%d*!?)\31(c?)\31([^\31]+\31[^\31]+\31[^\31]+.*)$'

-- Higher priority first, then order of acceptance: 201 priorities times 2^45 numbers fit a double exactly.
local SEQS = 35184372088832
local function lane_score(h) return (100 - h.priority) * SEQS + h.seq end

-- 0 where the score is infinite: somebody's hand.
local function seq_of_score(score)
  local seq = tonumber(score) % SEQS
  return seq == seq and seq or 0
end

local function unpack_header(text)
  if not text then return nil end
  local state, token, via, attempt, crashes, deliveries, redrives, noted, max_attempts, priority, cost,
    seq, enqueued_at, moved_at, expires, marked, lane = string.match(text, HEADER)
  if not state then return nil end
  -- a number of more digits was damaged, and would come back from arithmetic as something else
  if #attempt + #crashes > 15 or #deliveries > 10 or #redrives > 10 or tonumber(seq) >= SEQS then return nil end
  if #moved_at > 15 or #enqueued_at > 15 or #expires > 16 or #max_attempts > 10 then return nil end
  return {
    state = state, token = token, via = via, attempt = tonumber(attempt), crashes = tonumber(crashes),
    deliveries = tonumber(deliveries), redrives = tonumber(redrives), noted = noted, max_attempts = max_attempts,
    priority = tonumber(priority), cost = cost, seq = tonumber(seq), enqueued_at = enqueued_at,
    moved_at = moved_at, expires = expires, marked = marked, lane = lane,
  }
end

-- The same for a message that is looked at because of its own name: a header that names another tenant is damaged.
local function header_of(mid, text)
  local h = unpack_header(text)
  local tenant = tenant_of(mid) .. US
  if h and string.sub(h.lane, 1, #tenant) == tenant then return h end
end

local function pack_header(h)
  return table.concat({
    h.state, h.token, h.via, h.attempt, h.crashes, h.deliveries, h.redrives, h.noted, h.max_attempts, h.priority,
    h.cost, int(h.seq), h.enqueued_at, h.moved_at, h.expires, h.marked, h.lane,
  }, US)
end
