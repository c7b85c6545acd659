-- pause: stops what these selectors name ('' is one that is not given) from the next claim on; what is in flight goes
-- on. A pause that stands already keeps the instant it stands since.
-- ARGV schema now:int session stream callno tenant queue pool by reason
-- REPLY 1 if it is new, 0 if it stood already
-- @include begin
-- @include pauses
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end

local name = pauses.name_of(tenant, queue, pool)
local before = call('HGET', k.pauses, name)
local since = before and string.match(before, '^%d+') or int(now)
call('HSET', k.pauses, name, table.concat({ since, by, reason }, US))
local new = before and 0 or 1
record(new, REPLAY_MS)
return new
