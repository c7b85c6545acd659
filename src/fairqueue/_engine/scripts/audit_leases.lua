-- audit_leases: a page of lease records, each against its message, its deadline and its slots. What is
-- missing is given back by reconcile, a record whose message has left flight is dropped by reclaim.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local function check_slots(mid, lease)
  for _, group in ipairs(lane_of(lease.lane).groups) do
    local slot = try('HGET', k.slots(group), mid)
    if not failed(slot) and slot ~= lease.token then
      found('SLOTS', mid, 'the lease lists ' .. string.gsub(group, US, '/') .. ' but holds no slot there')
    end
    if call('SISMEMBER', k.groups, group) == 0 then
      found('SLOTS', group, 'a lease lists the group but it is not registered')
      if fix == 1 then call('SADD', k.groups, group) end
    end
  end
end

local NO_DEADLINE = 'the lease has no deadline, or one that never comes'
local page = call('HSCAN', k.leases, cursor, 'COUNT', 100)
local entries = page[2]
for i = 1, #entries, 2 do
  local mid, lease = entries[i], unpack_lease(entries[i + 1])
  local h = unpack_header(call('HGET', k.head, mid))
  local of_nobody = h and h.state ~= 'f' or not h and not (lease and is_pair(mid))
  if not lease then
    found('OWNER', mid, 'the lease record cannot be read')
  elseif not h then
    found('OWNER', mid, 'there is a lease record but no message')
    if fix == 1 and not of_nobody then put_header(mid, salvage_header(lease.lane, lease.token, lease.attempt)) end
  elseif h.state ~= 'f' then
    found('OWNER', mid, 'there is a lease record but the message is not in flight')
  else
    check_slots(mid, lease)
  end
  if not deadline_of(mid) then found('OWNER', mid, NO_DEADLINE) end
  if fix == 1 and of_nobody then call('ZADD', k.deadlines, int(now), mid) end -- reclaim drops it with its slots
end
return { page[1], #entries / 2, findings }
