-- enqueue: stores messages of any tenants. An id that is still there, dead ones included, adds nothing. The
-- header is written last: it is the commit mark. A message's place comes first, so whatever a cut leaves is
-- found there, and dropped, by a claim or a promote. Repeated with the same call number it answers as the first
-- time, though what it stored may be done and gone by then.
-- ARGV schema now:int session stream callno revision ttl:int
-- ROWS mid lane priority cost delay at max_attempts body
-- REPLY for each row: 1 or 0 (created), state
-- @include begin
-- @include names
-- @include header
-- @include policy
-- @include turns
-- @include bell
-- @include ring
-- @include gates
-- @include waiting
-- @include batons
-- @include counters
-- @include replay
-- @include revision

local answered = recorded(ttl)
if answered then
  local reply = {}
  for created, state in string.gmatch(answered, '(%d)(%l)') do reply[#reply + 1] = { tonumber(created), state } end
  return reply
end
must_know(revision)

local mids, rows = {}, {}
for at = ROWS_AT, #ARGV, ROW do
  local mid, lane, priority, cost, delay, due, max_attempts, body = unpack(ARGV, at, at + ROW - 1)
  mids[#mids + 1] = mid
  rows[#rows + 1] = {
    mid = mid, lane = lane, priority = priority, cost = cost, max_attempts = max_attempts, body = body,
    due = tonumber(due) or now + (tonumber(delay) or 0),
  }
end

-- Where a message is that is there already; one whose header cannot be read is on its way to the dead letters.
local function state_of(text)
  local h = unpack_header(text)
  return h and h.state or 'x'
end

local stored = get_many(k.head, mids)
local reply, fresh, seen = {}, {}, {}
for i, row in ipairs(rows) do
  if stored[i] or seen[row.mid] then
    reply[i] = { 0, stored[i] and state_of(stored[i]) or seen[row.mid] }
  else
    row.state = row.due > now and 'd' or 'r'
    seen[row.mid] = row.state
    fresh[#fresh + 1] = row
    reply[i] = { 1, row.state }
  end
end

local function answer()
  local summary = {}
  for i, each in ipairs(reply) do summary[i] = each[1] .. each[2] end
  record(table.concat(summary), ttl)
  return reply
end

if #fresh == 0 then return this_call.again and answer() or reply end

local seq = numbers('seq', #fresh) - #fresh
local by_lane, bodies, heads, delays = {}, {}, {}, {}
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
  end
  heads[#heads + 1] = row.mid
  heads[#heads + 1] = pack_header({
    state = row.state, token = '', via = 'e', attempt = 0, crashes = 0, deliveries = 0, redrives = 0, noted = 0,
    max_attempts = row.max_attempts, priority = row.priority, cost = row.cost, seq = row.seq,
    enqueued_at = int(now), moved_at = int(row.state == 'd' and row.due or now), lane = row.lane,
  })
  count(tenant, 'enqueued')
  moved_between(tenant, nil, row.state)
  present(tenant, 1)
end
many('ZADD', k.delayed, delays)
many('HSET', k.body, bodies)
many('HSET', k.head, heads)

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
flush_clocks()
flush_counters()
ring_bells()
return reply
