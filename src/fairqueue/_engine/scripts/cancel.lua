-- cancel: ends a message wherever it is. One that runs is marked: whoever runs it is told by the next extend, and
-- whatever its delivery ends by, but a completion, ends the message.
-- ARGV schema now:int session stream callno tenant id
-- FLAGS allow-oom
-- REPLY 'cancelled', 'cancelling' (it runs) or 'not_found'
-- @include transition
-- @include resting
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return answered end

-- What is stored under this name. One whose header was destroyed while it ran still runs; one that cannot be read, and
-- does not run, becomes a dead letter first, which is taken from there as any.
local function found(mid)
  local text = call('HGET', k.head, mid)
  local h = header_of(mid, text)
  if h then return h end
  local lease = unpack_lease(call('HGET', k.leases, mid))
  if lease then return salvage_header(lease.lane, lease.token, lease.attempt) end
  readable_header(mid, text, 'f')
  return unpack_header(call('HGET', k.head, mid))
end

local function cancelled(mid, h)
  if not h then return 'not_found' end
  if h.state == 'f' then
    h.marked = 'c'
    put_header(mid, h)
    return 'cancelling'
  end
  end_resting(mid, h, call('HGET', k.leases, mid))
  count(tenant, 'cancelled')
  return 'cancelled'
end

local mid = tenant .. US .. id
local outcome = cancelled(mid, found(mid))
flush_moves()
record(outcome, REPLAY_MS)
return outcome
