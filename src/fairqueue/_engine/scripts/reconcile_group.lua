-- reconcile_group: one bounded pass over the slots of a group. A slot whose token is not that of an existing
-- lease that lists the group is removed, unless the message itself is in flight with that token: then its record was
-- destroyed, and is written again. Check and removal are one script, so a live slot is never touched. A key of the
-- wrong type is closed: reconcile_leases refills it and reconcile_open opens it.
-- ARGV schema now:int session stream callno group cursor
-- FLAGS allow-oom
-- REPLY next cursor ('0' at the end, 'w' while there are waiters to wake), 1 when the group is closed, slots looked at,
-- mids that were freed, mids whose records were written again
-- @include transition
-- @include replay
-- @include strays

local answered = recorded(REPLAY_MS)
if answered then return cmsgpack.unpack(answered) end

if other_type(k.slots(group), 'hash') then
  call('UNLINK', k.slots(group))
  call('HSET', k.dirty, group, 'closed')
end
if dirty_state(group) == 'closed' or call('HGET', k.dirty, group) == 'closed' then return { '0', 1, 0, {}, {} } end

local function lists(lease)
  for _, of in ipairs(lane_of(lease.lane).groups) do
    if of == group then return true end
  end
  return false
end

local page = cursor == 'w' and { '0', {} } or call('HSCAN', k.slots(group), cursor, 'COUNT', 100)
local ghosts, rewritten, entries = {}, {}, page[2]

-- Whoever runs it holds the slot, whatever became of the record: freed, it would let another one in beside it.
local function still_runs(mid, token)
  local h = header_of(mid, call('HGET', k.head, mid))
  if not h or h.state ~= 'f' or h.token ~= token or not lists(h) then return false end
  call('HSET', k.leases, mid, pack_lease(lease_of_header(h, '')))
  rewritten[#rewritten + 1] = mid
  return true
end

for i = 1, #entries, 2 do
  local mid, token = entries[i], entries[i + 1]
  local lease = unpack_lease(call('HGET', k.leases, mid))
  local known = lease and lease.token == token and lists(lease)
  if not known and not still_runs(mid, token) then ghosts[#ghosts + 1] = mid end
end
many('HDEL', k.slots(group), ghosts)
if #ghosts + #rewritten > 0 then tally('healed', #ghosts + #rewritten) end

if page[1] == '0' then
  call('HDEL', k.dirty, group)
  any_dirty = false
end

-- Lists of those who wait that were evicted or deleted: the first of them tell, in some of the pools, others next time.
local POOLS, TOLD_BY = 20, 10
local function has_lost_lists(pool)
  local ring = k.ring(group_scope(pool, group))
  local tenants = call('ZRANGE', ring, 0, TOLD_BY - 1)
  if #tenants > 0 then call('SADD', k.waiters(group), pool) end
  for _, tenant in ipairs(tenants) do
    if call('EXISTS', waiting_key(pool, group, tenant)) == 0 then return true end
  end
  return call('SISMEMBER', k.waiters(group), pool) == 1 and call('EXISTS', ring, woken_key(pool, group)) == 0
end

for _, pool in ipairs(cursor == '0' and call('SRANDMEMBER', k.pools, POOLS) or {}) do
  if has_lost_lists(pool) then to_be_rebuilt() end
end
local left = cursor == '0' and 64 or 0 -- promises that are looked at
for _, pool in ipairs(left > 0 and call('SRANDMEMBER', k.waiters(group), POOLS) or {}) do
  guarantees.drop_strangers(group_scope(pool, group))
  if left > 0 then left = left - drop_strays(pool, group, left) end
end
most_wakes = 40 -- at most 2 ms of the server's time at a stretch
wake({ [group] = true })
if call('EXISTS', k.slots(group), k.waiters(group)) == 0 then call('SREM', k.groups, group) end
flush_moves()
if page[1] == '0' and wakes >= most_wakes then page[1] = 'w' end
local report = { page[1], 0, #entries / 2, ghosts, rewritten }
if #ghosts + #rewritten > 0 or this_call.again then record(cmsgpack.pack(report), REPLAY_MS) end
return report
