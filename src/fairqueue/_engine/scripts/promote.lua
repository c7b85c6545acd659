-- promote: moves what is due to its lane, at most `limit`, ends at most as many of those that were not started in time,
-- and wakes who waits for a token that has come; claims do the same on their way.
-- ARGV schema now:int limit:int
-- FLAGS allow-oom
-- REPLY how many were looked at; `limit` when there is more to do (call again)
-- @include transition
-- @include irreplaceable
-- @include promote_due
-- @include expiring
-- @include expire_due
-- @include rates_due

local expired = expiring.sweep(limit)
local promoted, more_due = promote_due(limit), rates.due()
flush_moves()
return more_due and limit or promoted + expired
