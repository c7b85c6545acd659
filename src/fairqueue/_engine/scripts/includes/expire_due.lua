-- The end of those that were not started in time.
-- SHARES nothing

local function is_dropped(h) return settings.dead_letters == '0' or string.sub(h.expires, -1) == '!' end

-- The header goes first: from then on the message is gone, and what a cut leaves is dropped by whoever reads the index
-- that lists it. A lease that a cut script left would bring the message back: reclaim ends that one first.
local function drop(mid)
  if call('HEXISTS', k.leases, mid) == 1 then return false end
  call('HDEL', k.head, mid)
  call('HDEL', k.body, mid)
  call('HDEL', k.notes, mid)
  present(tenant_of(mid), -1)
  count(tenant_of(mid), 'dropped')
  return true
end

-- Ends a message that waits; the index that lists it as ready or delayed is left to the caller. Returns where it is
-- now, nil if it is gone. What could not be ended is tried again: letters that cannot be written are mended some day.
function expiring.ends(mid, h)
  local tenant, from, state = tenant_of(mid), h.state, nil
  if not is_dropped(h) then
    state = make_dead(mid, h, 'expired', 'it was not started by its time')
    if state == 'x' then count(tenant, 'dead_lettered') end
  elseif not drop(mid) then
    state = from
  end
  moved_between(tenant, from, state)
  if state == 'r' or state == 'd' then
    call('ZADD', k.expiring, int(now + RETRY_LANE_MS), mid)
    return state
  end
  count(tenant, 'expired')
  call('ZREM', k.expiring, mid)
  return state
end

local function end_waiting(mid, h)
  local was = { state = h.state, lane = h.lane }
  if expiring.ends(mid, h) ~= was.state then unlist(mid, was) end
end

-- Ends at most `limit` of those whose instant has passed, wherever they wait. An entry whose header says otherwise is
-- dropped, one whose instant was damaged is put right.
function expiring.sweep(limit)
  local passed = call('ZRANGEBYSCORE', k.expiring, '-inf', int(now), 'LIMIT', 0, limit)
  if #passed == 0 then return 0 end
  local heads, done = get_many(k.head, passed), {}
  for i, mid in ipairs(passed) do
    local h = header_of(mid, heads[i])
    local waits = h and (h.state == 'r' or h.state == 'd') and expiring.instant(h)
    if waits and waits > now then
      expiring.list(mid, h)
    elseif waits then
      end_waiting(mid, h)
    else
      done[#done + 1] = mid
    end
  end
  many('ZREM', k.expiring, done)
  return #passed
end
