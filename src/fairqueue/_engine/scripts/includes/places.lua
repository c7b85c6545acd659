-- The places a message can be put, each written before the old one is left; the header says which one is true.
-- SHARES put_header make_delayed make_ready note make_dead salvage_header readable_header drop_remains gone
-- SHARES unlisted make_gone unlist_later unlist left_flight emptied_leave flush_moves
-- SHARES at_letters_of letters_leave
local function put_header(mid, h) call('HSET', k.head, mid, pack_header(h)) end

-- Its name first, and struck last: whoever looks for what is delayed of a tenant goes by the names.
local function make_delayed(mid, h, due)
  call('ZADD', k.delayed_names, 0, mid)
  call('ZADD', k.delayed, due, mid)
  h.state, h.moved_at = 'd', int(due)
  put_header(mid, h)
  -- due before all others: idle workers set their timers anew
  if call('ZRANK', k.delayed, mid) == 0 then bells[lane_of(h.lane).pool] = true end
end

-- Into its lane at its own place. A lane that cannot be written (its key holds another type) must not hold the
-- message in flight with a slot: it is delayed and tried again.
local function make_ready(mid, h)
  local lane = lane_of(h.lane)
  lane_ready(lane, h.seq)
  if failed(try('ZADD', k.lane(h.lane), lane_score(h), mid)) then
    note_stopped(lane)
    lane_leaves(lane)
    make_delayed(mid, h, now + RETRY_LANE_MS)
    return 'd'
  end
  h.state, h.moved_at = 'r', int(now)
  put_header(mid, h)
  wait_for_more(lane)
  return 'r'
end

-- Tenants whose dead letters this script changes are marked meanwhile. One that is cut leaves its mark, and reconcile
-- looks through those letters: nobody else might come to them for a long time. Each mark is of one script alone, so no
-- other, and no walk that began before, takes it away. A list that cannot be written is to be written again.
local at_letters = {} -- tenant -> the mark

local function at_letters_of(tenant)
  if at_letters[tenant] then return end
  at_letters[tenant] = tenant .. US .. own_sign()
  call('SADD', k.doubtful, at_letters[tenant])
end

local function letters_are_right()
  local marks = {}
  for _, mark in pairs(at_letters) do marks[#marks + 1] = mark end
  many('SREM', k.doubtful, marks)
end

-- These are on the list no more. One that cannot be written is left to reconcile, like whoever died.
local function letters_leave(tenant, ids)
  for from = 1, #ids, CHUNK do
    local these = { unpack(ids, from, math.min(from + CHUNK - 1, #ids)) }
    if failed(try('ZREM', k.dead(tenant), unpack(these))) then to_be_rebuilt() end
  end
  if call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
end

local function note(mid, h, reason, text)
  call('HSET', k.notes, mid, reason .. US .. int(now) .. US .. text)
  h.noted = 1
end

-- To the dead letters; head and body stay where they are. When those cannot be written the message is retried.
local function make_dead(mid, h, reason, text)
  local tenant = tenant_of(mid)
  at_letters_of(tenant)
  note(mid, h, reason, text)
  local at = numbers('dead', 1)
  call('SADD', k.dead_tenants, tenant) -- first: a list of letters that is not registered is found by nobody
  if failed(try('ZADD', k.dead(tenant), at, id_of(mid))) then
    to_be_rebuilt()
    make_delayed(mid, h, now + RETRY_LANE_MS)
    return 'd'
  end
  h.state, h.moved_at = 'x', int(now)
  put_header(mid, h)
  return 'x'
end

-- A header for a message whose own was destroyed, from what its lease or its lane still knows.
local function salvage_header(lane, token, attempt)
  return {
    state = 'f', token = token, via = 'e', attempt = attempt, crashes = 0, deliveries = attempt, redrives = 0,
    noted = 0, max_attempts = '', priority = 0, cost = '1', seq = numbers('seq', 1),
    enqueued_at = int(now), moved_at = int(now), expires = '', marked = '', lane = lane,
  }
end

-- The header of a message that an index of `state` lists; nil if there is none. An unreadable one must not
-- stop its neighbours nor be lost: that message goes to the dead letters with its bytes. What has not even the name of
-- a message could be taken from there by nobody: it is dropped.
local function readable_header(mid, text, state, lane)
  local h = header_of(mid, text)
  if h or not text then return h end
  if not is_pair(mid) then
    call('HDEL', k.head, mid)
    call('HDEL', k.body, mid)
    return nil
  end
  local tenant = tenant_of(mid)
  h = salvage_header(lane or (tenant .. US .. 'unknown' .. US .. 'default'), '', 0)
  moved_between(tenant, state, make_dead(mid, h, 'unreadable', 'the stored header could not be read'))
  return nil
end

-- What is left of an index entry without a header: an enqueue was cut, or a message ended. But one whose header was
-- destroyed while it was in flight still has its lease, and is written again from that.
local function drop_remains(mid)
  if call('HEXISTS', k.leases, mid) == 1 then return end
  call('HDEL', k.body, mid)
  call('HDEL', k.notes, mid)
  call('ZREM', k.expiring, mid)
end

-- Messages that end here. The header goes first, so that the message is gone; the index that listed it goes last,
-- so that what a cut leaves is found there, and dropped with its payload, by whoever reads the index.
local gone, unlisted = {}, {}
local emptied = {}

local function make_gone(mid)
  gone[#gone + 1] = mid
  present(tenant_of(mid), -1)
end

-- For a message that ends outside flight: `h` names the index that lists it.
local function unlist_later(mid, h)
  if h.state == 'x' then at_letters_of(tenant_of(mid)) end
  moved_between(tenant_of(mid), h.state, nil)
  unlisted[mid] = h
end

local function unlist(mid, h)
  local tenant = tenant_of(mid)
  if h.state ~= 'x' then call('ZREM', k.expiring, mid) end
  if h.state == 'r' then
    try('ZREM', k.lane(h.lane), mid)
    emptied[lane_of(h.lane)] = true
  elseif h.state == 'd' then
    call('ZREM', k.delayed, mid)
    call('ZREM', k.delayed_names, mid)
  elseif h.state == 'x' then
    letters_leave(tenant, { id_of(mid) })
  end
end

local landed = {} -- mids that have left flight
local function left_flight(mid) landed[#landed + 1] = mid end

-- Lanes out of which messages were taken, and which have none now.
local function emptied_leave()
  for lane in pairs(emptied) do lane_emptied(lane) end
  emptied = {}
end

-- In this order: slots, then the records that describe them, then the messages that ended, then whoever waits.
local function flush_moves()
  flush_slots()
  many('HDEL', k.leases, landed)
  many('HDEL', k.head, gone)
  many('HDEL', k.body, gone)
  many('HDEL', k.notes, gone)
  many('ZREM', k.deadlines, landed)
  for mid, h in pairs(unlisted) do unlist(mid, h) end
  emptied_leave()
  wake_freed()
  rates.finish()
  flush_clocks()
  flush_counters()
  letters_are_right()
  ring_bells()
end
