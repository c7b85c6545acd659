-- Freeing slots: best-effort cleanup that never blocks the transition. What cannot be freed is a leak, and a
-- leak heals: it is counted, and its group is dirty until reconcile has seen it.
-- SHARES freed free_slots flush_slots wake_freed
local freed = {} -- group -> mids

local function free_later(group, mid)
  local mids = freed[group]
  if not mids then
    mids = {}
    freed[group] = mids
  end
  mids[#mids + 1] = mid
end

-- The message's slots in all groups of its lane. With a live lease whatever stands under its mid is its own
-- or its own leftover; without one (`token` given) only a slot with exactly that token may go.
local function free_slots(mid, lane, token)
  for _, group in ipairs(lane_of(lane).groups) do
    if not token or try('HGET', k.slots(group), mid) == token then free_later(group, mid) end
  end
end

local function flush_slots()
  local failures = 0
  for group, mids in pairs(freed) do
    local reply
    for from = 1, #mids, CHUNK do
      reply = try('HDEL', k.slots(group), unpack(mids, from, math.min(from + CHUNK - 1, #mids)))
      if failed(reply) then break end
    end
    if failed(reply) then
      failures = failures + #mids
      mark_dirty(group, 'dirty')
      redis.log(redis.LOG_WARNING, 'fairqueue: ' .. #mids .. ' not freed, ' .. k.slots(group) .. ': ' .. failed(reply))
    end
  end
  if failures > 0 then tally('freed_late', failures) end
end

-- After the records are gone: hand the freed room on, and forget groups that nobody holds or waits for.
local function wake_freed()
  local idle = {}
  for _, mids in pairs(freed) do
    most_wakes, most_moves = most_wakes + #mids, most_moves + #mids
  end
  wake(freed)
  for group in pairs(freed) do
    wake_leftovers(group)
    if not dirty_state(group) and call('EXISTS', k.slots(group), k.waiters(group)) == 0 then idle[#idle + 1] = group end
  end
  many('SREM', k.groups, idle)
end
