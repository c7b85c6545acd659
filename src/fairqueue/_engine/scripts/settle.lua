-- settle: ends deliveries: complete, fail (retried by `delay`, or dead), release (uncounted), dead (now). `begun` is 0
-- if no handler began, so a release gives back what the delivery was charged, and its tokens; `seconds` is what it
-- took, which is then charged. Only the newest token may; the one exception is a complete of a message that came back
-- by reclaim and that nobody took since. Repeated with the same call number it answers as the first time.
-- ARGV schema now:int session stream callno revision ttl:int
-- ROWS mid token action delay begun seconds reason text
-- FLAGS allow-oom
-- REPLY an outcome for each row
-- @include transition
-- @include service
-- @include corrections
-- @include irreplaceable
-- @include bury
-- @include expiring
-- @include replay
-- @include revision

local answered = recorded(ttl)
if answered then
  local outcomes = {}
  for outcome in string.gmatch(answered, '%l+') do outcomes[#outcomes + 1] = outcome end
  return outcomes
end
must_know(revision)

local mids = {}
for at = ROWS_AT, #ARGV, ROW do mids[#mids + 1] = ARGV[at] end
local lease_texts, head_texts = get_many(k.leases, mids), get_many(k.head, mids)

local function end_message(mid, h, what)
  if h then unlist_later(mid, h) end
  make_gone(mid)
  count(tenant_of(mid), what)
end

local function put_back(mid, h, delay)
  local state = 'd'
  if delay > 0 then make_delayed(mid, h, now + delay) else state = make_ready(mid, h) end
  moved_between(tenant_of(mid), 'f', state)
end

local actions = {}

function actions.complete(row)
  end_message(row.mid, nil, 'completed')
  return 'done'
end

function actions.fail(row, h, budget)
  count(tenant_of(row.mid), 'failed')
  h.via = 'f'
  if h.attempt >= budget then return bury(row.mid, h, 'failed', row.text) end
  note(row.mid, h, 'failed', row.text)
  put_back(row.mid, h, row.delay)
  count(tenant_of(row.mid), 'retried')
  return 'retried'
end

-- After a delay the tenant's next message comes up, which nobody has given back yet: whoever gives all of them back
-- would hold up all others with them. So many in a row; then something of the tenant must have run.
local IN_A_ROW = 100
local function seldom(tenant)
  local ran, row, since = unpack(call('HMGET', k.tenant(tenant), 'completed', 'undone', 'undone_at'))
  ran = count_in(ran) or 0
  row = count_in(since) == ran and count_in(row) or 0
  if row < IN_A_ROW then call('HSET', k.tenant(tenant), 'undone', int(row + 1), 'undone_at', int(ran)) end
  return row < IN_A_ROW
end

-- Once a message: whoever claims and gives back the same one again and again would hold up all others with it.
local function undone(row, h)
  if row.action ~= 'release' or row.begun or h.via == 'l' then return false end
  return row.delay == 0 or seldom(tenant_of(row.mid))
end

function actions.release(row, h)
  h.via, h.attempt = 'l', math.max(0, h.attempt - 1)
  expiring.list(row.mid, h)
  put_back(row.mid, h, row.delay)
  count(tenant_of(row.mid), 'released')
  return 'released'
end

function actions.cancel(row)
  end_message(row.mid, nil, 'cancelled')
  return 'cancelled'
end

function actions.dead(row, h)
  h.via = 'f'
  return bury(row.mid, h, row.reason, row.text)
end

-- The transition of a message that this token owns in flight. The slots go by what the lease lists; without a
-- record by the header's groups, and then only slots with exactly this token.
local function leave_flight(row, lease, h)
  local lane = lease and lease.lane or h.lane
  h = h or salvage_header(lane, row.token, lease.attempt)
  local budget = lease and lease.max_attempts or tonumber(h.max_attempts) or tonumber(settings.max_attempts)
  if lease and row.seconds then
    corrections.measured(lease, row.seconds)
  elseif lease and undone(row, h) then
    corrections.undone(lease)
  end
  if row.action == 'release' and not row.begun then rates.give_back(lane_of(lane)) end
  -- a cancel is final, but done work is done
  if h.marked == 'c' and row.action ~= 'complete' then row.action = 'cancel' end
  local outcome = actions[row.action](row, h, budget)
  free_slots(row.mid, lane, not lease and row.token or nil)
  left_flight(row.mid)
  return outcome
end

-- A settle that was cut after it had moved the message: only its lease is left to drop.
local MOVED = { r = 'released', d = 'retried', x = 'dead' }
local function finish_cut(row, lease, h)
  free_slots(row.mid, lease.lane)
  left_flight(row.mid)
  if row.action ~= 'complete' then return MOVED[h.state] end
  end_message(row.mid, h, 'completed')
  return 'done'
end

local function settle(row, lease, h)
  if lease and lease.token == row.token then
    if not h or h.state == 'f' then return leave_flight(row, lease, h) end
    return finish_cut(row, lease, h)
  end
  if not h or h.token ~= row.token then return 'lost' end
  if h.state == 'f' and not lease then return leave_flight(row, nil, h) end
  if row.action == 'complete' and h.via == 'c' and h.state ~= 'f' then
    free_slots(row.mid, h.lane, row.token)
    end_message(row.mid, h, 'completed')
    return 'done'
  end
  return 'lost'
end

local function seconds_in(text)
  local seconds = tonumber(text)
  if seconds then charges.by_time = true end -- whom this script wakes is promised by time, too
  return seconds
end

local outcomes, seen = {}, {}
for i, mid in ipairs(mids) do
  local at = ROWS_AT + (i - 1) * ROW
  local row = {
    mid = mid, token = ARGV[at + 1], action = ARGV[at + 2], delay = tonumber(ARGV[at + 3]) or 0,
    begun = ARGV[at + 4] ~= '0', seconds = seconds_in(ARGV[at + 5]), reason = ARGV[at + 6], text = ARGV[at + 7],
  }
  outcomes[i] = seen[mid] and 'lost' or settle(row, unpack_lease(lease_texts[i]), unpack_header(head_texts[i]))
  if outcomes[i] ~= 'lost' then seen[mid] = true end
end

flush_moves()
service.write()
record(table.concat(outcomes, ' '), ttl)
return outcomes
