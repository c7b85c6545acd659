-- reconcile_open: opens a group that was closed and has been refilled from the leases, and wakes whoever it
-- has room for.
-- ARGV schema now:int session stream callno group
-- FLAGS allow-oom
-- REPLY 1 if waiters are left for whom there is room (call again)
-- @include transition
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end

call('HDEL', k.dirty, group)
any_dirty = false
most_wakes = 40 -- at most 2 ms of the server's time at a stretch
wake({ [group] = true })
if call('EXISTS', k.slots(group), k.waiters(group)) == 0 then call('SREM', k.groups, group) end
flush_moves()
local more = wakes >= most_wakes and 1 or 0
record(more, REPLAY_MS)
return more
