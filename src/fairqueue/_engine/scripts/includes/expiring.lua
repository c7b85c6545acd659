-- Time to live: a message that was not started by its instant becomes a dead letter then, or is dropped. A delivery
-- that was given back uncounted is no start. `expiring` lists those that wait for their first start and have such an
-- instant; the header is the truth, and a claim asks it before it starts anything.
-- SHARES expiring
local expiring = {}

-- nil: it has none, or was started.
function expiring.instant(h)
  if h.expires == '' or h.attempt > 0 then return nil end
  return tonumber(string.match(h.expires, '^%d+'))
end

function expiring.passed(h)
  local at = expiring.instant(h)
  return at and at <= now
end

-- Before the message waits: what waits and is not listed would be found by nobody until its turn comes.
function expiring.list(mid, h)
  local at = expiring.instant(h)
  if at then call('ZADD', k.expiring, int(at), mid) end
end
