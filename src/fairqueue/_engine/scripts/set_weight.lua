-- set_weight: the weight of one tenant; 1 is that of everybody else, and forgets it. Turns of the backlog that is there
-- go by it from the next claim on. Each row names a scope where the tenant was charged (see charged_at).
-- ARGV schema now:int session stream callno tenant weight:float
-- ROWS scope
-- REPLY 1, or 0 where the scheduler knows no weights: nothing was changed
-- @include transition
-- @include replay
-- @include reweigh

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end
local knows = (not policy.by_seq or weight == 1) and 1 or 0
local named = {}
for i = ROWS_AT, #ARGV, ROW do named[#named + 1] = ARGV[i] end
if knows == 1 then reweigh(tenant, weight, named) end
record(knows, REPLAY_MS)
return knows
