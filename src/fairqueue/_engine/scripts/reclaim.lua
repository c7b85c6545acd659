-- reclaim: every expired lease goes back to its old place at once, or, after too many crashes, to the dead letters;
-- one that was cancelled meanwhile ends. The slots are freed in the same step, by what the lease lists: a process
-- that never saw the message can do it. With `hold` (ms) the leases of before an outage are not judged for so long
-- after the server was first seen to serve again: the handlers that went on meanwhile have not had the time to extend
-- them. It is the server that remembers, since whoever asks may have started after the outage; and how long it has
-- run does not tell when it had loaded its data.
-- ARGV schema now:int session stream callno limit:int hold:int
-- FLAGS allow-oom
-- REPLY how many were looked at, mids put back, mids that died
-- @include transition
-- @include irreplaceable
-- @include bury
-- @include expiring
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return cmsgpack.unpack(answered) end

-- Leases claimed before this instant are held back; nil: none are.
local function held_before()
  if hold == 0 then return nil end
  local run, running = string.match(call('INFO', 'server'), 'run_id:(%x+).-uptime_in_seconds:(%d+)')
  local noted = try('HMGET', k.served, 'run', 'at', 'since')
  if failed(noted) then call('DEL', k.served) end
  local of, at, since = noted[1], tonumber(noted[2]), tonumber(noted[3])
  local past = at and since and at <= now and since <= now -- a hold that never ends would hold slots as long
  if of ~= run or not at or not past then
    -- a run nobody here has seen yet; where no run ever was, only the start of this one can have been an outage (the
    -- server counts whole seconds of its clock: it started up to a second later than that)
    at, since = now, of and now or now - (tonumber(running) - 1) * 1000
    call('HSET', k.served, 'run', run, 'at', int(at), 'since', int(since))
  end
  if now - at < hold then return since end
end

local expired = call('ZRANGEBYSCORE', k.deadlines, '-inf', int(now), 'LIMIT', 0, limit)
local before = held_before()
if before then
  local claimed_since = {}
  for i, text in ipairs(get_many(k.leases, expired)) do
    local lease = unpack_lease(text)
    if lease and tonumber(lease.claimed_at) >= before then claimed_since[#claimed_since + 1] = expired[i] end
  end
  expired = claimed_since
end
local lease_texts, head_texts = get_many(k.leases, expired), get_many(k.head, expired)
local reclaimed, dead = {}, {}

-- A settle that was cut may have put a message in its next place and not said so in the header: it leaves that first.
local function leave_other_places(mid)
  if call('ZREM', k.delayed, mid) == 1 then call('ZREM', k.delayed_names, mid) end
  local tenant = tenant_of(mid)
  local letters = try('ZREM', k.dead(tenant), id_of(mid))
  if failed(letters) and not other_type(k.dead(tenant), 'zset') then error(letters) end
  if letters == 1 and call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
end

local function take_back(mid, lease, h)
  leave_other_places(mid)
  if h.marked == 'c' then
    make_gone(mid)
    return count(tenant_of(mid), 'cancelled')
  end
  local budget = lease and lease.max_crashes or tonumber(settings.max_crashes)
  h.via, h.crashes = 'c', h.crashes + 1
  count(tenant_of(mid), 'reclaimed')
  if h.crashes >= budget then
    local outcome = bury(mid, h, 'worker lost', 'the lease expired ' .. h.crashes .. ' times')
    table.insert(outcome == 'retried' and reclaimed or dead, mid)
    return
  end
  moved_between(tenant_of(mid), 'f', make_ready(mid, h))
  reclaimed[#reclaimed + 1] = mid
end

for i, mid in ipairs(expired) do
  local lease = unpack_lease(lease_texts[i])
  local h = unpack_header(head_texts[i])
  if not is_pair(mid) then
    h = nil -- no name of a message: what is stored under it is dropped
    gone[#gone + 1] = mid
  elseif not h and head_texts[i] then
    readable_header(mid, head_texts[i], 'f', lease and lease.lane)
    dead[#dead + 1] = mid
  elseif not h and lease then
    h = salvage_header(lease.lane, lease.token, lease.attempt)
  end
  -- a lease whose message has already left flight (a cut script) is only cleaned up, as is a deadline with nothing
  local in_flight = h and h.state == 'f'
  if in_flight then take_back(mid, lease, h) end
  -- a claim that was cut has taken it off the list of those that expire
  if h and (h.state == 'r' or h.state == 'd') then expiring.list(mid, h) end
  if lease then
    free_slots(mid, lease.lane, not in_flight and lease.token or nil)
  elseif in_flight then
    free_slots(mid, h.lane, h.token)
  end
  if not head_texts[i] and not lease then gone[#gone + 1] = mid end -- a completion was cut: the rest of it goes
  left_flight(mid)
end

flush_moves()
local report = { #expired, reclaimed, dead }
if #expired > 0 or this_call.again then record(cmsgpack.pack(report), REPLAY_MS) end
return report
