-- extend: moves the deadlines of leases to now + visibility. An expired lease that nobody reclaimed lives on; a
-- record that was destroyed is written again from the header.
-- ARGV schema now:int visibility:int consumer
-- ROWS mid token
-- FLAGS allow-oom
-- REPLY for each row the new deadline, or 0 when the lease is lost; and the numbers of the rows that are cancelled
-- @include begin
-- @include names
-- @include header
-- @include lease

local mids = {}
for at = ROWS_AT, #ARGV, ROW do mids[#mids + 1] = ARGV[at] end
local leases, heads = get_many(k.leases, mids), get_many(k.head, mids)

local reply, deadlines, cancelled = {}, {}, {}
for i, mid in ipairs(mids) do
  local token = ARGV[ROWS_AT + (i - 1) * ROW + 1]
  local lease, h = unpack_lease(leases[i]), unpack_header(heads[i])
  local ours = lease and lease.token == token and (not h or h.state == 'f')
  if not lease and h and h.state == 'f' and h.token == token then
    call('HSET', k.leases, mid, pack_lease(lease_of_header(h, consumer)))
    ours = true
  end
  reply[i] = ours and int(now + visibility) or '0'
  if ours then
    deadlines[#deadlines + 1] = reply[i]
    deadlines[#deadlines + 1] = mid
    if h and h.marked == 'c' then cancelled[#cancelled + 1] = i - 1 end
  end
end
many('ZADD', k.deadlines, deadlines)
return { reply, cancelled }
