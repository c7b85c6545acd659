-- set_backlog: how many messages of a tenant may wait; '' removes it. In force from the next enqueue on.
-- ARGV schema now:int session stream callno tenant value
-- REPLY 1
-- @include begin
-- @include replay

if recorded(REPLAY_MS) then return 1 end
if value == '' then call('HDEL', k.backlogs, tenant) else call('HSET', k.backlogs, tenant, value) end
record('1', REPLAY_MS)
return 1
