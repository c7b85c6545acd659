-- reclaim: every expired lease goes back to its old place at once, or, after too many crashes, to the dead
-- letters. The slots are freed in the same step, by what the lease lists: a process that never saw the
-- message can do it. With `uptime` (seconds) nothing is judged by a server that has run for less: it was away, and
-- the handlers that went on meanwhile have not had the time to extend their leases.
-- ARGV schema now:int limit:int uptime:int
-- FLAGS allow-oom
-- REPLY how many were looked at, mids put back, mids that died
-- @include transition
-- @include bury

local expired = call('ZRANGEBYSCORE', k.deadlines, '-inf', int(now), 'LIMIT', 0, limit)
if #expired > 0 and uptime > 0 then
  local running = string.match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  if running and tonumber(running) < uptime then return { 0, {}, {} } end
end
local lease_texts, head_texts = get_many(k.leases, expired), get_many(k.head, expired)
local reclaimed, dead = {}, {}

local function take_back(mid, lease, h)
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
  if not h and head_texts[i] then
    readable_header(mid, head_texts[i], 'f', lease and lease.lane)
    dead[#dead + 1] = mid
  elseif not h and lease then
    h = salvage_header(lease.lane, lease.token, lease.attempt)
  end
  -- a lease whose message has already left flight (a cut script) is only cleaned up, as is a deadline with nothing
  local in_flight = h and h.state == 'f'
  if in_flight then take_back(mid, lease, h) end
  if lease then
    free_slots(mid, lease.lane, not in_flight and lease.token or nil)
  elseif in_flight then
    free_slots(mid, h.lane, h.token)
  end
  if not head_texts[i] and not lease then gone[#gone + 1] = mid end -- a completion was cut: the rest of it goes
  left_flight(mid)
end

flush_moves()
return { #expired, reclaimed, dead }
