-- resume: lifts the pause of exactly these selectors. Who was parked at it takes turns again; other pauses, and limits,
-- stop him as before.
-- ARGV schema now:int session stream callno tenant queue pool
-- FLAGS allow-oom
-- REPLY 1 if the pause stood, 1 if lanes are left that wait at it (call again)
-- @include transition
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then
  local stood, more = string.match(answered, '^(%d) (%d)$')
  return { tonumber(stood), tonumber(more) }
end

local name = pauses.name_of(tenant, queue, pool)
local group = pauses.group_of(name)
local stood = call('HDEL', k.pauses, name)
if tenant == '' and queue == '' then bells[pool] = true end -- nobody of the pool was parked
most_wakes = 40 -- at most 2 ms of the server's time at a stretch
wake({ [group] = true })
if call('EXISTS', k.slots(group), k.waiters(group)) == 0 then call('SREM', k.groups, group) end
flush_moves()
local more = wakes >= most_wakes and 1 or 0
record(stood .. ' ' .. more, REPLAY_MS)
return { stood, more }
