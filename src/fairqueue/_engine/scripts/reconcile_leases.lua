-- reconcile_leases: one bounded pass over the lease records: each gets back a slot or a deadline that is
-- missing, and a record that cannot be read is written again from its header.
-- ARGV schema now:int session stream callno cursor visibility:int
-- FLAGS allow-oom
-- REPLY next cursor, how many leases were looked at, what was given back as (mid, group or 'deadline' or 'lease')
-- @include transition
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return cmsgpack.unpack(answered) end

local page = call('HSCAN', k.leases, cursor, 'COUNT', 50)
local entries, restored = page[2], {}

local function give_back(mid, what) restored[#restored + 1] = { mid, what } end

-- A stale record (its message has left flight) gets no slot; a deadline, so that reclaim drops it.
local function check_slots(mid, lease)
  for _, group in ipairs(lane_of(lease.lane).groups) do
    local slot = try('HGET', k.slots(group), mid)
    if failed(slot) then
      mark_dirty(group, 'dirty')
    elseif slot ~= lease.token then
      call('HSET', k.slots(group), mid, lease.token)
      call('SADD', k.groups, group)
      give_back(mid, group)
    end
  end
end

local function rewritten(mid, h)
  local lease = lease_of_header(h, '')
  call('HSET', k.leases, mid, pack_lease(lease))
  give_back(mid, 'lease')
  return lease
end

for i = 1, #entries, 2 do
  local mid, lease = entries[i], unpack_lease(entries[i + 1])
  local h = unpack_header(call('HGET', k.head, mid))
  local in_flight = h and h.state == 'f'
  -- a record that lists other groups than its message was damaged
  if lease and in_flight and lease.token == h.token and lease.lane ~= h.lane then lease = nil end
  if not lease and in_flight then lease = rewritten(mid, h) end
  if not deadline_of(mid) then
    call('ZADD', k.deadlines, int(now + visibility), mid)
    give_back(mid, 'deadline')
  end
  if lease and (in_flight and h.token == lease.token or not h) then check_slots(mid, lease) end
end
if #restored > 0 then call('HINCRBY', k.totals, 'healed', #restored) end
local report = { page[1], #entries / 2, restored }
if #restored > 0 or this_call.again then record(cmsgpack.pack(report), REPLAY_MS) end
return report
