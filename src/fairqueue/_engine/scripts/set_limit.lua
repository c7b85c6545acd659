-- set_limit: the limit of one group: a number, 'none' for unlimited, '' to go back to the declared default.
-- Whoever waits and fits now is woken.
-- ARGV schema now:int session stream callno group value revision
-- REPLY 1 if waiters are left for whom there is room (call again)
-- @include transition
-- @include replay
-- @include revision

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end
must_know(revision)

if value == '' then call('HDEL', k.limits, group) else call('HSET', k.limits, group, value) end
wake({ [group] = true })
wake_leftovers(group)
flush_moves()
local more = wakes >= most_wakes and 1 or 0
record(more, REPLAY_MS)
return more
