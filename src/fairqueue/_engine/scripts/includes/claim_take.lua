-- Writing what was chosen. The record goes before the slot: a slot without a matching record can only be a
-- leak.
-- SHARES take finish_lanes deliver

local function new_lease(pick, number)
  local h = pick.header
  local was = h.attempt
  h.deliveries = h.deliveries + 1
  h.token = string.format('%08d.%x.%s', h.deliveries, number, string.sub(session, 1, 8))
  h.state, h.attempt, h.moved_at = 'f', was + 1, int(now)
  pick.token = h.token
  pick.text = pack_header(h)
  pick.record = pack_lease({
    token = h.token, consumer = consumer, claimed_at = int(now), attempt = h.attempt,
    max_attempts = h.max_attempts ~= '' and h.max_attempts or settings.max_attempts,
    max_crashes = settings.max_crashes, charge = charges.pack(pick.charged, pick.turn), lane = h.lane,
  })
end

local function take_slots()
  local by_group = {}
  for _, pick in ipairs(picks) do
    for _, group in ipairs(pick.lane.groups) do
      local entries = by_group[group] or {}
      by_group[group] = entries
      entries[#entries + 1] = pick.mid
      entries[#entries + 1] = pick.token
    end
  end
  local names = {}
  for group, entries in pairs(by_group) do
    names[#names + 1] = group
    local added = try('HSET', k.slots(group), unpack(entries, 1, math.min(#entries, CHUNK)))
    for from = CHUNK + 1, #entries, CHUNK do
      try('HSET', k.slots(group), unpack(entries, from, math.min(from + CHUNK - 1, #entries)))
    end
    if failed(added) then
      mark_dirty(group, 'dirty')
    elseif added ~= gates[group].taken then
      batons[group] = true -- a leftover was overwritten: there is more room than was counted
    end
  end
  many('SADD', k.groups, names)
end

local function leave_lanes()
  local by_lane = drops
  for _, pick in ipairs(picks) do
    by_lane[pick.lane] = by_lane[pick.lane] or {}
    table.insert(by_lane[pick.lane], pick.mid)
  end
  for lane, mids in pairs(by_lane) do
    if not lane.broken then many('ZREM', k.lane(lane.name), mids) end
  end
end

local function take(given, rest)
  local leases, deadlines, heads, started = {}, {}, {}, {}
  local number = #picks > 0 and numbers('claims', #picks) - #picks or 0
  rates.save()
  for i, pick in ipairs(picks) do
    service.note(pick.lane, pick.header, pick.charged, pick.promised)
    new_lease(pick, number + i)
    given[#given + 1] = { mid = pick.mid, token = pick.token, header = pick.text }
    leases[i * 2 - 1], leases[i * 2] = pick.mid, pick.record
    deadlines[i * 2 - 1], deadlines[i * 2] = int(now + visibility), pick.mid
    heads[i * 2 - 1], heads[i * 2] = pick.mid, pick.text
    moved_between(pick.lane.tenant, 'r', 'f')
    if pick.header.expires ~= '' then started[#started + 1] = pick.mid end
  end
  if #picks > 0 then tally('claimed', #picks) end
  if #given + #rest > 0 or this_call.again then claim_record(given, rest) end
  many('HSET', k.leases, leases)
  many('ZADD', k.deadlines, deadlines)
  many('ZREM', k.expiring, started) -- cut here, they are listed again when the lease has expired
  many('HSET', k.head, heads)
  take_slots()
  leave_lanes()
end

-- Lanes that ran empty (or cannot be read) leave their ring; freed or refused batons are handed on.
local function finish_lanes()
  for lane in pairs(touched) do
    if lane.broken then
      note_stopped(lane)
      lane_leaves(lane)
    else
      lane_emptied(lane)
    end
  end
  for _ in pairs(batons) do most_wakes = most_wakes + 1 end
  wake(batons)
end

local function deliver(given)
  local mids, leases = {}, {}
  for i, lease in ipairs(given) do mids[i] = lease.mid end
  local bodies = get_many(k.body, mids)
  for i, lease in ipairs(given) do
    leases[i] = { lease.mid, lease.token, int(now + visibility), lease.header, bodies[i] }
  end
  return leases
end
