-- enqueue: stores messages of any tenants. An id that is still there, dead ones included, adds nothing. The
-- header is written last: it is the commit mark. A message's place comes first, so whatever a cut leaves is
-- found there, and dropped, by a claim or a promote. Of a tenant with a bounded backlog all new messages of the call go
-- in, or none. Repeated with the same call number it answers as the first
-- time, though what it stored may be done and gone by then.
-- ARGV schema now:int session stream callno revision ttl:int
-- ROWS mid lane priority cost delay at max_attempts expires dedupe body
-- REPLY for each row: 1 or 0 (created), state (g: gone, and seen before; b: refused by the backlog); then for each
-- tenant refused: name, how many of its messages wait, how many may
-- @include begin
-- @include irreplaceable
-- @include names
-- @include header
-- @include weights
-- @include gates
-- @include guarantees
-- @include uses
-- @include turns
-- @include policy
-- @include bell
-- @include ring
-- @include rates
-- @include waiting
-- @include batons
-- @include counters
-- @include replay
-- @include revision

local answered = recorded(ttl)
if answered then
  local rows, full = string.match(answered, '^([^\n]*)\n(.*)$')
  local reply, refusals = {}, {}
  for created, state in string.gmatch(rows, '(%d)(%l)') do reply[#reply + 1] = { tonumber(created), state } end
  for tenant, waits, most in string.gmatch(full, '([^\31\n]+)\31(%d+)\31(%d+)') do
    refusals[#refusals + 1] = { tenant, waits, most }
  end
  return { reply, refusals }
end
must_know(revision)

-- '+' is from now on; '!' at the end: dropped then.
local function instant_of(expires)
  local from_now, at, drop = string.match(expires, '^(%+?)(%d+)(!?)$')
  return at and int(tonumber(at) + (from_now == '+' and now or 0)) .. drop or ''
end

local mids, rows = {}, {}
for at = ROWS_AT, #ARGV, ROW do
  local mid, lane, priority, cost, delay, due, max_attempts, expires, dedupe, body = unpack(ARGV, at, at + ROW - 1)
  mids[#mids + 1] = mid
  rows[#rows + 1] = {
    mid = mid, lane = lane, priority = priority, cost = cost, max_attempts = max_attempts, body = body,
    due = tonumber(due) or now + (tonumber(delay) or 0), expires = instant_of(expires),
    dedupe = tonumber(dedupe) or 0,
  }
end

-- Where a message is that is there already; one whose header cannot be read is on its way to the dead letters.
local function state_of(text)
  local h = unpack_header(text)
  return h and h.state or 'x'
end

-- Accepted within its time, and gone since. The instant decides; that the key expires only keeps memory small.
local function seen_before(row)
  local until_then = row.dedupe > 0 and try('GET', k.seen(row.mid))
  -- a key of another type says nothing; one that could not be read might have said that it was
  if failed(until_then) and not other_type(k.seen(row.mid), 'string') then error(until_then) end
  return type(until_then) == 'string' and (tonumber(until_then) or 0) > now
end

local stored = get_many(k.head, mids)
local reply, fresh, seen, refusals = {}, {}, {}, {}
for i, row in ipairs(rows) do
  if stored[i] or seen[row.mid] then
    reply[i] = { 0, stored[i] and state_of(stored[i]) or seen[row.mid] }
  elseif seen_before(row) then
    reply[i] = { 0, 'g' }
  else
    row.state = row.due > now and 'd' or 'r'
    seen[row.mid] = row.state
    fresh[#fresh + 1] = row
    reply[i] = { 1, row.state }
  end
end

-- How many messages of a tenant wait, and how many may, where these are too many.
local function no_room_for(tenant, more, most)
  if not most or most < 0 then return nil end
  local gauges = call('HMGET', k.tenant(tenant), 'r', 'd')
  local waits = math.max(0, count_in(gauges[1]) or 0) + math.max(0, count_in(gauges[2]) or 0)
  if waits + more > most then return { tenant, int(waits), int(most) } end
end

-- All new messages of a tenant go in, or none.
local function refuse_beyond_backlogs()
  local tenants, added, refused, left = {}, {}, {}, {}
  for _, row in ipairs(fresh) do
    local tenant = tenant_of(row.mid)
    if not added[tenant] then tenants[#tenants + 1] = tenant end
    added[tenant] = (added[tenant] or 0) + 1
  end
  local backlogs = get_many(k.backlogs, tenants)
  for i, tenant in ipairs(tenants) do
    refused[tenant] = no_room_for(tenant, added[tenant], count_in(backlogs[i]))
    refusals[#refusals + 1] = refused[tenant]
  end
  for _, row in ipairs(fresh) do
    if not refused[tenant_of(row.mid)] then left[#left + 1] = row end
  end
  for i, row in ipairs(rows) do
    if refused[tenant_of(row.mid)] and not stored[i] and reply[i][2] ~= 'g' then reply[i] = { 0, 'b' } end
  end
  return left
end

if #fresh > 0 then fresh = refuse_beyond_backlogs() end

local function answer()
  local summary, full = {}, {}
  for i, each in ipairs(reply) do summary[i] = each[1] .. each[2] end
  for i, each in ipairs(refusals) do full[i] = table.concat(each, US) end
  record(table.concat(summary) .. '\n' .. table.concat(full, '\n'), ttl)
  return { reply, refusals }
end

if #fresh == 0 then return this_call.again and answer() or { reply, refusals } end

local seq = numbers('seq', #fresh) - #fresh
local by_lane, bodies, heads, delays, names, expiring = {}, {}, {}, {}, {}, {}
for i, row in ipairs(fresh) do
  row.seq = seq + i
  bodies[#bodies + 1] = row.mid
  bodies[#bodies + 1] = row.body
  if row.state == 'r' then
    by_lane[row.lane] = by_lane[row.lane] or {}
    table.insert(by_lane[row.lane], row)
  end
end

local function write_lane(name, ready)
  local entries = {}
  for _, row in ipairs(ready) do
    entries[#entries + 1] = lane_score({ priority = tonumber(row.priority), seq = row.seq })
    entries[#entries + 1] = row.mid
  end
  lane_ready(lane_of(name), ready[1].seq)
  for from = 1, #entries, CHUNK do
    local part = try('ZADD', k.lane(name), unpack(entries, from, math.min(from + CHUNK - 1, #entries)))
    if failed(part) then return false end
  end
  wait_for_more(lane_of(name))
  return true
end

for name, ready in pairs(by_lane) do
  if not write_lane(name, ready) then
    -- the key holds another type: accepted all the same, and tried again
    for _, row in ipairs(ready) do row.state, row.due = 'd', now + RETRY_LANE_MS end
  end
end

for _, row in ipairs(fresh) do
  local tenant = tenant_of(row.mid)
  if row.state == 'd' then
    delays[#delays + 1] = int(row.due)
    delays[#delays + 1] = row.mid
    names[#names + 1] = 0
    names[#names + 1] = row.mid
  end
  if row.expires ~= '' then
    expiring[#expiring + 1] = string.match(row.expires, '%d+')
    expiring[#expiring + 1] = row.mid
  end
  heads[#heads + 1] = row.mid
  heads[#heads + 1] = pack_header({
    state = row.state, token = '', via = 'e', attempt = 0, crashes = 0, deliveries = 0, redrives = 0, noted = 0,
    max_attempts = row.max_attempts, priority = row.priority, cost = row.cost, seq = row.seq,
    enqueued_at = int(now), moved_at = int(row.state == 'd' and row.due or now), expires = row.expires, marked = '',
    lane = row.lane,
  })
  count(tenant, 'enqueued')
  moved_between(tenant, nil, row.state)
  present(tenant, 1)
end
if guarantees.any then
  for _, row in ipairs(fresh) do uses.note(tenant_of(row.mid), lane_of(row.lane).groups, row.due) end
end
many('ZADD', k.delayed_names, names)
many('ZADD', k.delayed, delays)
many('ZADD', k.expiring, expiring)
many('HSET', k.body, bodies)
many('HSET', k.head, heads)
-- After the commit mark: what was cut before that is not there, and must not be refused when it is sent again.
for _, row in ipairs(fresh) do
  if row.dedupe > 0 then call('SET', k.seen(row.mid), int(now + row.dedupe), 'PX', int(row.dedupe)) end
end

for i, row in ipairs(rows) do
  if reply[i][1] == 1 then reply[i][2] = row.state end
end
answer()
if #delays > 0 then
  -- due before all others: whoever idles sets its timer anew
  local soonest = call('ZRANGE', k.delayed, 0, 0)[1]
  for _, row in ipairs(fresh) do
    if row.mid == soonest then bells[lane_of(row.lane).pool] = true end
  end
end
rates.finish()
flush_clocks()
flush_counters()
ring_bells()
return { reply, refusals }
