-- promote: moves what is due to its lane, at most `limit`; claims do the same on their way.
-- ARGV schema now:int limit:int
-- FLAGS allow-oom
-- REPLY how many were looked at
-- @include begin
-- @include names
-- @include header
-- @include lease
-- @include policy
-- @include turns
-- @include bell
-- @include ring
-- @include gates
-- @include waiting
-- @include counters
-- @include slots
-- @include places
-- @include promote_due

local promoted = promote_due(limit)
flush_moves()
return promoted
